/* SPDX-License-Identifier: Apache-2.0 */
/* The options of every command that plans attention, declared once. */
#ifndef ITH_CLI_ATTEND_OPTIONS_H
#define ITH_CLI_ATTEND_OPTIONS_H

#include "option.h"

#include <ithaca/ithaca.h>

typedef struct ith_attend_choices {
    int64_t ranks, threads;
    const char *strategy, *wisdom, *trace;
    ith_attn_options asked; /* zeros at first; ith_attend_choose sets strategy, fold and smooth */
    bool no_smoothing, fold, no_fold;
} ith_attend_choices;

/* The words of options by number. Types are the types of attention; ITH_DTYPE_NONE is "auto". */
const char *ith_attend_softmax_word(int value);
const char *ith_attend_dtype_word(int value);

/* Adds the rows for an ith_attend_choices at `offset` in the command's settings, and returns the new count. lists: the
 * rows of strategy and softmax are left out, because the command takes lists of these. */
int ith_attend_add_options(ith_option *table, int count, size_t offset, bool lists);

/* Translates the choices into options of the library. An option such as --softmax overrides the softmax in the name of
 * a strategy (ulysses_custom_fixed_m). Prints errors and returns an exit status. */
int ith_attend_choose(ith_context *context, const char *command, const ith_attend_choices *choices,
                      ith_attn_options *out);

/* Before planning: checks that the threads can be started and that the files can be written, reads the wisdom if
 * its file is there, and starts the trace. */
int ith_attend_begin(ith_context *context, const ith_attend_choices *choices);
/* At the end: writes wisdom and trace. */
int ith_attend_end(ith_context *context, const ith_attend_choices *choices);

#endif
