/* SPDX-License-Identifier: Apache-2.0 */
/* The options of every command that plans attention, declared once. */
#ifndef ITH_CLI_ATTEND_OPTIONS_H
#define ITH_CLI_ATTEND_OPTIONS_H

#include "option.h"

#include <ithaca/ithaca.h>

/* A word is 0 if not given, otherwise 1 for the first. */
typedef struct ith_attend_choices {
    int64_t ranks, threads, ulysses, ring, chunks;
    int64_t block_q, block_kv, block_kv_compute, block_kv_compute_in;
    const char *kernel, *wisdom, *trace;
    int direction, exchange, effort;
    bool no_smoothing, fold, no_fold;
} ith_attend_choices;

/* Words of options; NULL ends each. dtypes[i] is the type of ith_attend_dtypes[i]. */
extern const char *const ith_attend_softmaxes[], *const ith_attend_dtype_words[];
extern const ith_dtype ith_attend_dtypes[];

/* Adds the rows of an ith_attend_choices that lies at `offset` in the command's settings; returns the new count. */
int ith_attend_add_options(ith_option *table, int count, size_t offset);

/* Makes the library's options of them. strategy: a name, or NULL; softmax: 0, or 1 for the first of the words. What is
 * asked for by an option of its own counts more than what the strategy's name brings along. Prints what is wrong and
 * returns an exit status. */
int ith_attend_choose(ith_context *context, const char *command, const ith_attend_choices *choices,
                      const char *strategy, int64_t softmax, ith_attn_options *out);

/* Before planning: checks that the threads can be started and that the files can be written, reads the wisdom if
 * its file is there, and starts the trace. */
int ith_attend_begin(ith_context *context, const ith_attend_choices *choices);
/* After all is done: writes both. */
int ith_attend_end(ith_context *context, const ith_attend_choices *choices);

#endif
