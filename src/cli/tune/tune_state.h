/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `ithaca tune`: the machine (tune_machine.c), the tiles of kernels (tune_tiles.c), strategies
 * (tune_strategy.c), times (tune_time.c) and the report (tune_report.c). */
#ifndef ITH_CLI_TUNE_STATE_H
#define ITH_CLI_TUNE_STATE_H

#include "../launch/launch.h"
#include "../option/option.h"
#include "../shared_option/model_options.h"
#include "tune_journal.h"

#include <ithaca/video_cost.h>

#include <limits.h>

/* The values of the command's options. */
typedef struct ith_tune_settings {
    ith_model_files files;
    const char *problem, *kernel, *wisdom, *machine, *device;
    ith_option_list seq, dtype, softmax;
    int64_t heads, head_dim, ffn_dim, ranks, threads;
    double budget;
    bool again, alone, json;
    ith_launch_choices launch; /* transport and timeout alone */
} ith_tune_settings;

/* Tiles of one kernel, for one type, softmax and number of keys. */
typedef struct ith_tune_cell {
    ith_tile_search about; /* about.kernel is `kernel` */
    char kernel[64];
    ith_tile_choice usual, best;
    double usual_seconds, best_seconds; /* of a whole block, or of an execution of a plan; 0: not measured */
    bool known;                         /* by wisdom, from an earlier run */
    bool done;
} ith_tune_cell;

/* The strategy for one type, softmax and length. */
typedef struct ith_tune_strategy {
    ith_attn_problem problem;
    ith_softmax softmax;
    ith_plan_info usual, best;
    double usual_seconds, best_seconds;
    bool known, done;
} ith_tune_strategy;

#define ITH_TUNE_CELLS 256

/* The command in this process. */
typedef struct ith_tune {
    const ith_tune_settings *settings;
    ith_context *context;
    ith_video_problem video; /* sizes of the model */
    bool has_video;          /* whether a model or problem was named */
    char wisdom[PATH_MAX], machine_path[PATH_MAX];
    ith_journal journal;
    ith_machine machine;  /* this machine; freed by ith_machine_file_free */
    double start, until;  /* the budget, on ith_cli_seconds */
    bool late;            /* the budget ended before the work did */
    double block_seconds; /* the quiet time of the last block that was measured */
    ith_tune_cell cells[ITH_TUNE_CELLS];
    int cell_count;
    ith_tune_strategy strategies[ITH_TUNE_CELLS];
    int strategy_count;
} ith_tune;

/* Whether a signal came or the budget is over. user: an ith_tune. */
bool ith_tune_stops(void *user);
/* Merges the wisdom into its file. Prints errors and returns an exit status. */
int ith_tune_save(ith_tune *t);
/* Shows the measurement under way, on a terminal only. */
void ith_tune_show(const ith_tune *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Finds a file in the cache, or the file that an option names; "none": none. */
int ith_tune_find_file(const char *option, const char *given, const char *name, char path[PATH_MAX]);
/* Finds the file that describes this machine, and writes its name to t->machine_path; "" for none. Prints errors and
 * returns an exit status. */
int ith_tune_find_machine(ith_tune *t);
/* The command over several processes: measures the links between them. code: as for ith_launch_run. Prints errors and
 * returns an exit status. */
int ith_tune_links(ith_tune *t, const ith_launch *launch, int code, const ith_options *options);

/* Describes this machine, finds the tiles of all cells, and the strategies. They print errors and return an exit
 * status. */
int ith_tune_machine(ith_tune *t);
int ith_tune_tiles(ith_tune *t);
int ith_tune_strategies(ith_tune *t);

/* A choice is taken only if it is faster than the usual one by this share, and by more than the difference of two
 * measurements of the usual one. */
#define ITH_TUNE_MARGIN 0.01
/* Whether `seconds` is faster than the usual times by more than the noise. usual: two times of the same choice. */
bool ith_tune_is_faster(double seconds, const double usual[2]);

/* Sets *seconds to the quiet time of a block of the transformer with `tokens` tokens. The plans of its self-attention
 * follow the wisdom of `context`. ITH_ERR_INTERRUPTED when the work is to stop. */
ith_status ith_tune_time_block(ith_tune *t, ith_context *context, const ith_tune_cell *cell, int64_t tokens,
                               double *seconds);
/* Sets *seconds to the fastest time of an execution on `ranks` ranks of this process, and fills in *info. */
ith_status ith_tune_time_plan(ith_tune *t, ith_context *context, const ith_attn_problem *problem,
                              const ith_attn_options *options, int ranks, double *seconds, ith_plan_info *info);

/* Print the results of the command, as a table or as JSON. The second function prints errors and returns an exit
 * status. */
void ith_tune_print_table(const ith_tune *t);
int ith_tune_print_json(const ith_tune *t);

#endif
