/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca plan: lists every plan of an attention problem or of a video on a described machine, with its predicted cost.
 * Nothing is executed. */
#include "plan_state.h"

#include "../cli.h"
#include "../file/output_name.h"
#include "../machine/machine_file.h"
#include "../option/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST 1e9     /* upper limit of sizes */
#define MOST_RANKS 1e6  /* upper limit of --ranks */
#define MOST_REPEAT 1e6 /* upper limit of --repeat */

ITH_OPTION_WORD_OF(cfg)
ITH_OPTION_WORD_OF(precision)

#define AT(member) offsetof(ith_plan_settings, member)
static const ith_option own_rows[] = {
    {.help = "The problem, a video or one attention:"},
    {"problem", "NAME", "A video by name, such as wan2.1-1.3b-480p; an unknown name makes it list all", ITH_OPTION_TEXT,
     .offset = AT(problem)},
    {"cfg", "auto|batch|parallel|sequential", "Of a video, how the guidance branches are computed (auto: any)",
     ITH_OPTION_WORD, .offset = AT(cfg), .word = cfg_word},
    {"precision", "auto|bf16|f32", "Of a video (auto: the faster one on the machine)", ITH_OPTION_WORD,
     .offset = AT(precision), .word = precision_word},
    {"steps", "N", "Denoising steps of a video (as in its reference code)", ITH_OPTION_WHOLE, .offset = AT(steps),
     .least = 1, .most = LARGEST},
    {"lora-rank", "N", "Rank of a LoRA of a video's transformer (0: none)", ITH_OPTION_WHOLE, .offset = AT(lora_rank),
     .least = 0, .most = 4096},
    {"seq", "N", "Queries of an attention", ITH_OPTION_WHOLE, .offset = AT(seq), .least = 1, .most = LARGEST},
    {"kv-seq", "N", "Keys (as many as queries)", ITH_OPTION_WHOLE, .offset = AT(kv_seq), .least = 1, .most = LARGEST},
    {"batch", "N", "Batch (1)", ITH_OPTION_WHOLE, .offset = AT(batch), .least = 1, .most = LARGEST},
    {"heads", "N", "Heads (40)", ITH_OPTION_WHOLE, .offset = AT(heads), .least = 1, .most = LARGEST},
    {"kv-heads", "N", "Heads of keys and values (as many as of queries)", ITH_OPTION_WHOLE, .offset = AT(kv_heads),
     .least = 1, .most = LARGEST},
    {"head-dim", "N", "Head size (128)", ITH_OPTION_WHOLE, .offset = AT(head_dim), .least = 1, .most = LARGEST},
    {"dtype", "f32|bf16|f16", "Type of the tensors (bf16)", ITH_OPTION_WORD, .offset = AT(dtype),
     .word = ith_attend_dtype_word},
    {.help = "The machine:"},
    {"machine", "NAME|FILE",
     "The machine: a name that machines/README.md lists, a YAML file (its name has a '/' or ends with .yaml), or "
     "local, this machine as 'ithaca tune' has described it, or measured now (local)",
     ITH_OPTION_TEXT, .offset = AT(machine)},
    {"ranks", "N", "Ranks (1)", ITH_OPTION_WHOLE, .offset = AT(ranks), .least = 1, .most = MOST_RANKS},
    {"threads", "N", "Threads of each rank (its share of the host)", ITH_OPTION_WHOLE, .offset = AT(threads),
     .least = 1, .most = LARGEST},
    {"process-ranks", "N", "Ranks of each process, which share memory (as the machine says)", ITH_OPTION_WHOLE,
     .offset = AT(process_ranks), .least = 1, .most = MOST_RANKS},
    {"host-ranks", "N", "Ranks of each host (as the machine says)", ITH_OPTION_WHOLE, .offset = AT(host_ranks),
     .least = 1, .most = MOST_RANKS},
    {.help = "Simulation of the best plan:"},
    {"simulate", NULL,
     "Simulate the best plan on all ranks: an attention, or the layers of a video; with --json, print it alone",
     ITH_OPTION_FLAG, .offset = AT(simulate)},
    {"jitter", "X", "Standard deviation of simulated work, as a share of it (0)", ITH_OPTION_NUMBER,
     .offset = AT(simulation.jitter), .least = 0, .most = 1},
    {"slow-rank", "N", "A rank whose simulated work takes longer (none)", ITH_OPTION_WHOLE,
     .offset = AT(simulation.slow_rank), .least = 0, .most = MOST_RANKS},
    {"slow-factor", "X", "Factor by which --slow-rank takes longer (2)", ITH_OPTION_NUMBER,
     .offset = AT(simulation.slow_factor), .least = 1, .most = 1000},
    {"repeat", "N", "Simulated executions, one after the other (1; the layers of a video)", ITH_OPTION_WHOLE,
     .offset = AT(simulation.executions), .least = 1, .most = MOST_REPEAT},
    {"seed", "N", "Seed of the jitter (0)", ITH_OPTION_WHOLE, .offset = AT(simulation.seed), .least = 0,
     .most = LARGEST},
    {"trace", "FILE", "Write the simulated work, waits and exchanges as JSON for chrome://tracing or Perfetto",
     ITH_OPTION_TEXT, .offset = AT(trace)},
    {.help = "What is printed:"},
    {"rows", "N", "Legal plans in the table (20)", ITH_OPTION_WHOLE, .offset = AT(rows), .least = 1, .most = LARGEST},
    {"explain", NULL, "Show the terms of the best plan", ITH_OPTION_FLAG, .offset = AT(explain)},
    {"json", NULL, "Print all plans as a JSON array", ITH_OPTION_FLAG, .offset = AT(json)},
};
#undef AT

static const char doc[] =
    "List every plan of a video or of one attention on a machine, with its predicted time, the fastest first; then the "
    "plans that are not legal, with the rule that forbids them. The machine need not be at hand: nothing is executed."
    "\v"
    "s/attention is the predicted time of one attention on the rank that takes longest; of a video s/step is the time "
    "of a denoising step, and s/video the whole time, by which plans are sorted. hidden is the share of the exchanges "
    "that passes while the rank computes ('-': no exchange takes time), MB sent the data that the busiest rank sends "
    "in one attention, MB held the memory of its plan, or of the process of rank 0 of a video. An option that sets a "
    "choice leaves out the plans with another one, but none in which it has no effect, such as --chunks on one rank. A "
    "machine description (machines/README.md) has rates of kernels, levels of links, and memory.";

/* Describes the problem from the options. */
static void describe_problem(const ith_plan_settings *s, ith_attn_problem *p)
{
    *p = (ith_attn_problem)ITH_ATTN_PROBLEM_INIT;
    p->batch = s->batch, p->heads = s->heads, p->kv_heads = s->kv_heads ? s->kv_heads : s->heads;
    p->q_len = s->seq, p->kv_len = s->kv_seq ? s->kv_seq : s->seq;
    p->head_dim = s->head_dim, p->dtype = (ith_dtype)s->dtype;
}

/* Lists the plans on a machine that was read. */
static int list_plans(ith_plan_command *c, const char *command)
{
    const ith_plan_settings *s = c->settings;
    ith_attn_options options;
    int code = ith_attend_choose(c->context, command, &s->choices, &options);
    if (code)
        return code;
    options.threads = (int)s->threads;
    options.process_ranks = s->process_ranks, options.host_ranks = s->host_ranks;
    if (s->problem)
        return ith_plan_add_video(c, &options);
    describe_problem(s, &c->problem);
    if (ith_plan_list(c->context, &c->problem, &options, &c->machine, (int)s->ranks, ith_plan_take, c))
        return ith_cli_error("%s", ith_context_error(c->context));
    return ITH_EXIT_DONE;
}

/* Simulates the best plan. Its row gets the simulated cost. */
static int simulate(ith_plan_command *c)
{
    static const int64_t trace_events = 1 << 20;
    const ith_plan_settings *s = c->settings;
    ith_plan_row *best = &c->rows[0];
    int code = ith_cli_check_output(s->trace);
    if (code)
        return code;
    c->predicted = *best;
    if ((s->trace && ith_trace_start(c->context, trace_events)) ||
        (s->problem ? ith_plan_simulate_video(c)
                    : ith_plan_simulate(c->context, &c->problem, &c->predicted.options, &c->machine, (int)s->ranks,
                                        &s->simulation, &best->info, &best->cost)) ||
        (s->trace && ith_trace_save(c->context, s->trace)))
        return ith_cli_error("%s", ith_context_error(c->context));
    return ITH_EXIT_DONE;
}

/* Prints the plans. If none is legal, says why. An empty list has one reason: there is no mesh for strategy
 * ulysses_ring. All other plans that are not legal are listed, each with the rule that forbids it. */
static int print_plans(const ith_plan_command *c)
{
    int code = ITH_EXIT_DONE;
    if (c->settings->json)
        code = ith_plan_print_json(c);
    else if (c->count)
        ith_plan_print_table(c);
    if (code || c->legal_count)
        return code;
    if (c->count)
        return ith_cli_error("no plan is legal: %s", c->rows[0].rule);
    return ith_cli_error(
        "no plan is legal: strategy ulysses_ring needs two axes of at least two ranks, with a head for "
        "each rank of the ulysses axis, and %lld ranks have no such mesh: ulysses and ring have one "
        "axis",
        (long long)c->settings->ranks);
}

/* Runs the command after its options are parsed. */
static int run(const ith_plan_settings *settings, const char *command)
{
    ith_plan_command c = {.settings = settings};
    int code = ith_cli_context(ITH_TALK_NORMAL, &c.context);
    ith_machine_case wanted = ITH_MACHINE_CASE_INIT;
    wanted.dtype = (ith_dtype)settings->dtype, wanted.head_dim = settings->head_dim;
    c.video = (ith_video_problem)ITH_VIDEO_PROBLEM_INIT;
    if (!code && settings->problem && ith_video_problem_named(c.context, settings->problem, &c.video))
        code = ith_cli_usage(command, "--problem: %s", ith_context_error(c.context));
    if (!code)
        code = ith_machine_find(c.context, settings->machine, &wanted, &c.machine);
    if (!code) {
        code = list_plans(&c, command);
        if (!code && settings->simulate && c.legal_count)
            code = simulate(&c);
        if (!code)
            code = print_plans(&c);
        ith_machine_file_free(&c.machine);
    }
    free(c.rows);
    ith_context_destroy(&c.context);
    return code;
}

/* Whether the command line has one of these options, whose names end with NULL. *name: the first one. */
static bool is_given(const ith_options *options, const char *const *names, const char **name)
{
    for (; *names; names++)
        if (ith_option_source_of(options, *names) == ITH_FROM_COMMAND) {
            *name = *names;
            return true;
        }
    return false;
}

/* Checks that no option of the command line would have no effect. */
static int check_effects(const ith_plan_settings *s, const ith_options *options)
{
    static const char *const sizes[] = {"heads", "head-dim", "batch", "dtype", NULL};
    static const char *const simulated[] = {"jitter", "slow-rank", "slow-factor", "repeat", "seed", "trace", NULL};
    static const char *const slow[] = {"slow-factor", NULL}, *const table[] = {"rows", "explain", NULL};
    static const char *const random[] = {"seed", NULL};
    const char *name = NULL;
    if (s->problem && is_given(options, sizes, &name))
        return ith_cli_usage(options->command, "--problem excludes --%s: the model has its own", name);
    if (!s->simulate && is_given(options, simulated, &name))
        return ith_cli_usage(options->command, "--%s needs --simulate", name);
    if (s->simulation.slow_rank < 0 && is_given(options, slow, &name))
        return ith_cli_usage(options->command, "--%s needs --slow-rank", name);
    if (!(s->simulation.jitter > 0) && is_given(options, random, &name))
        return ith_cli_usage(options->command, "--%s needs --jitter", name);
    if (s->json && is_given(options, table, &name))
        return ith_cli_usage(options->command, "--json excludes --%s: it prints all plans", name);
    return ITH_EXIT_DONE;
}

/* Checks that there is one problem, and no option of the other kind of problem. */
static int check(const ith_plan_settings *s, const ith_options *options)
{
    const char *command = options->command;
    if (!s->problem && !s->seq)
        return ith_cli_usage(command, "--problem or --seq is needed");
    if (s->problem && (s->seq || s->kv_seq || s->kv_heads || s->threads))
        return ith_cli_usage(command, "--problem excludes --seq, --kv-seq, --kv-heads and --threads");
    if (!s->problem && (s->cfg || s->precision || s->steps || s->lora_rank))
        return ith_cli_usage(command, "--cfg, --precision, --steps and --lora-rank need --problem");
    return check_effects(s, options);
}

int ith_cli_plan(int argc, char **argv)
{
    ith_plan_settings settings = {.simulation = ITH_SIMULATION_INIT,
                                  .machine = "local",
                                  .ranks = 1,
                                  .batch = 1,
                                  .heads = 40,
                                  .head_dim = 128,
                                  .dtype = ITH_BF16,
                                  .rows = 20};
    settings.simulation.slow_factor = 2;
    ith_option table[ITH_OPTIONS_MAX];
    memcpy(table, own_rows, sizeof own_rows);
    ith_options options = {.table = table, .settings = &settings, .command = argv[0]};
    options.count =
        ith_attend_add_choices(table, sizeof own_rows / sizeof *own_rows, offsetof(ith_plan_settings, choices));
    ith_options_parse(&options, argc, argv, doc, NULL);
    int code = ith_options_check(&options);
    if (!code)
        code = check(&settings, &options);
    if (!code)
        code = run(&settings, argv[0]);
    ith_options_free(&options);
    return code;
}
