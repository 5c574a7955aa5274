/* SPDX-License-Identifier: Apache-2.0 */
/* The options that all commands with attention share: --strategy, --ranks, --kernel and so on. */
#ifndef ITH_CLI_ATTEND_OPTIONS_H
#define ITH_CLI_ATTEND_OPTIONS_H

#include "../launch/launch.h"
#include "../option/option.h"

#include <ithaca/ithaca.h>

/* The values of the options of attention; 0, false or NULL where the user gave none. */
typedef struct ith_attend_choices {
    int64_t ranks, threads;
    const char *strategy, *wisdom;
    ith_attn_options asked; /* options that need no translation; its strategy, fold and smooth stay 0 */
    bool no_smoothing, fold, no_fold, no_overlap;
    ith_launch_choices launch;
} ith_attend_choices;

/* The name of a softmax, or of an element type for attention, by its number; "unknown" behind the last one.
 * ITH_DTYPE_NONE has the name "auto". */
const char *ith_attend_softmax_word(int value);
const char *ith_attend_dtype_word(int value);

/* Appends the options of attention to a table that has `count` rows, and returns the new count. offset: the position of
 * an ith_attend_choices in the command's settings. lists: leaves out --strategy and --softmax, because the command
 * declares its own, which take lists. */
int ith_attend_add_options(ith_option *table, int count, size_t offset, bool lists);

/* Appends the options that choose a plan, but not the options of a run: --ranks, --threads, --effort, --wisdom and the
 * options of processes. Returns the new count. */
int ith_attend_add_choices(ith_option *table, int count, size_t offset);

/* Translates the choices into options of the library. An option such as --softmax overrides the softmax in the name of
 * a strategy (ulysses_custom_fixed_m). Prints errors and returns an exit status. */
int ith_attend_choose(ith_context *context, const char *command, const ith_attend_choices *choices,
                      ith_attn_options *out);

/* Sets the options of attention that the user left open to the choices of the plan of a problem on `ranks` ranks of one
 * process, for --print-config. Their source is wisdom, or a rule. Prints errors and returns an exit status. */
int ith_attend_fill(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *asked, int ranks,
                    ith_options *options);

/* The file that --wisdom names; NULL if it names none. */
const char *ith_attend_wisdom_file(const ith_attend_choices *choices);
/* To be called before planning. Checks that the threads can be started, `others` (thread_limit.h) included. In the
 * process of rank 0 it also checks that the wisdom can be written, if ith_attend_end will write it, and reads it if its
 * file exists; without --wisdom it reads the file of 'ithaca tune' in the user's cache. Prints errors and returns an
 * exit status. */
int ith_attend_begin(ith_context *context, const ith_attend_choices *choices, const ith_launch *launch, int others);
/* To be called at the end, in the process of rank 0. Writes the wisdom to the file of --wisdom if this file does not
 * exist yet, or if --effort measure may have added to the wisdom. Prints errors and returns an exit status. */
int ith_attend_end(ith_context *context, const ith_attend_choices *choices);

#endif
