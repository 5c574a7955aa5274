/* SPDX-License-Identifier: Apache-2.0 */
/* The options of every command that plans attention, declared once. */
#ifndef ITH_CLI_ATTEND_OPTIONS_H
#define ITH_CLI_ATTEND_OPTIONS_H

#include "option.h"

#include <ithaca/ithaca.h>

typedef struct ith_attend_choices {
    int64_t ranks, threads;
    const char *strategy, *wisdom, *trace;
    ith_attn_options asked; /* all zero at first; strategy, fold and smooth are set by ith_attend_choose */
    bool no_smoothing, fold, no_fold;
} ith_attend_choices;

/* The words of options. A type is one that attention takes; ITH_DTYPE_NONE is "auto". */
const char *ith_attend_softmax_word(int value);
const char *ith_attend_dtype_word(int value);

/* Adds the rows of an ith_attend_choices that lies at `offset` in the command's settings; returns the new count. lists:
 * without strategy and softmax, of which the command takes lists. */
int ith_attend_add_options(ith_option *table, int count, size_t offset, bool lists);

/* Makes the library's options of them. What is asked for by an option of its own counts more than what the strategy's
 * name brings along. Prints what is wrong and returns an exit status. */
int ith_attend_choose(ith_context *context, const char *command, const ith_attend_choices *choices,
                      ith_attn_options *out);

/* Before planning: checks that the threads can be started and that the files can be written, reads the wisdom if
 * its file is there, and starts the trace. */
int ith_attend_begin(ith_context *context, const ith_attend_choices *choices);
/* After all is done: writes both. */
int ith_attend_end(ith_context *context, const ith_attend_choices *choices);

#endif
