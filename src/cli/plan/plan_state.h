/* SPDX-License-Identifier: Apache-2.0 */
/* The command's settings and the list of plans, which the files of `ithaca plan` share. */
#ifndef ITH_CLI_PLAN_STATE_H
#define ITH_CLI_PLAN_STATE_H

#include "../shared_option/attend_options.h"

#include <ithaca/video_cost.h>

/* The values of the command's options. */
typedef struct ith_plan_settings {
    const char *problem, *machine;
    ith_cfg cfg;
    ith_precision precision;
    int64_t steps, lora_rank;
    int64_t ranks, threads, process_ranks, host_ranks;
    int64_t seq, kv_seq, batch, heads, kv_heads, head_dim;
    int dtype;
    ith_attend_choices choices;
    int64_t rows;
    bool explain, json;
    bool simulate;
    ith_simulation simulation;
    const char *trace;
} ith_plan_settings;

/* One plan of the list. Its info and cost have no meaning if it is not legal. */
typedef struct ith_plan_row {
    bool legal;
    char rule[256]; /* the rule that forbids the plan */
    ith_attn_options options;
    ith_plan_info info;
    ith_cost cost;        /* of one attention */
    ith_cfg cfg;          /* AUTO where no video is planned */
    ith_video_cost video; /* only if cfg is not AUTO */
    int64_t number;       /* in the order in which plans were added */
} ith_plan_row;

/* The state of the command. */
typedef struct ith_plan_command {
    const ith_plan_settings *settings;
    ith_context *context;
    ith_machine machine;
    ith_attn_problem problem;
    ith_video_problem video; /* that --problem names */
    ith_plan_row *rows;      /* the legal plans, the fastest first, then the others */
    int64_t count, room, legal_count;
    ith_cfg cfg;            /* of the plans of a video that are listed now */
    ith_plan_row predicted; /* with --simulate: the best plan as it was predicted; its row has the simulated cost */
} ith_plan_command;

/* Adds a plan to the list (ith_plan_candidate_fn). user: the ith_plan_command. */
ith_status ith_plan_take(void *user, const ith_plan_candidate *candidate);
/* Adds the plans of command->video, for each cfg, and sorts them. Prints errors and returns an exit status. */
int ith_plan_add_video(ith_plan_command *command, const ith_attn_options *options);
/* Simulates the layers of the video with the best plan, whose row gets the simulated cost. */
ith_status ith_plan_simulate_video(ith_plan_command *command);

/* Prints the list as a table; with --explain the terms of the best plan follow. */
void ith_plan_print_table(const ith_plan_command *command);
/* Prints the list as a JSON array. Prints errors and returns an exit status. */
int ith_plan_print_json(const ith_plan_command *command);

#endif
