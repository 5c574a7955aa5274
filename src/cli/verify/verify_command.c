/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca verify: executes random problems with every legal plan (verify_run.c), compares each with float64, and prints
 * the verdicts as a table or as JSON. */
#include "verify.h"

#include "../cli.h"
#include "../launch/launch.h"
#include "../launch/progress.h"
#include "../launch/thread_limit.h"
#include "../shared_option/attend_options.h"
#include "../shared_option/device_option.h"
#include "../support/json_print.h"

#include <stdio.h>
#include <string.h>

/* The values of the command's options. */
typedef struct verify_settings {
    ith_option_list seq;
    int64_t kv_seq, batch, heads, kv_heads, head_dim, ranks, threads;
    const char *kernel, *device;
    uint64_t seed;
    double logits;
    int dtype, mask;
    bool json;
    ith_launch_choices launch;
} verify_settings;

/* The state of the command. */
typedef struct verify_command {
    const verify_settings *settings;
    const char *command; /* "ithaca verify" */
    ith_launch launch;
    ith_context *context;
    ith_verify problem; /* the problem that is verified now */
    int problems;       /* the number of problems that were begun */
    json_t *reports;    /* the verdicts of all problems, for --json */
    int plans, failures;
} verify_command;

#define RANKS_ALONE 4 /* the default of --ranks in a single process */

/* The values of --mask. */
enum { NO_MASK = 0, LENGTHS, BOOL, ADDITIVE };

/* The word of --mask for a number (ith_option.word). */
static const char *mask_word(int value)
{
    static const char *const words[] = {"none", "lengths", "bool", "additive"};
    return (unsigned)value <= ADDITIVE ? words[value] : "unknown";
}

#define LARGEST 1e6 /* upper limit of sizes */
#define AT(member) offsetof(verify_settings, member)
static const ith_option own_rows[] = {
    {"seq", "N[,N..]", "Queries; one problem for each (131)", ITH_OPTION_WHOLES, .offset = AT(seq), .least = 1,
     .most = LARGEST},
    {"kv-seq", "N", "Keys (as many as queries)", ITH_OPTION_WHOLE, .offset = AT(kv_seq), .least = 0, .most = LARGEST},
    {"batch", "N", "Batch (2)", ITH_OPTION_WHOLE, .offset = AT(batch), .least = 1, .most = LARGEST},
    {"heads", "N", "Heads (6)", ITH_OPTION_WHOLE, .offset = AT(heads), .least = 1, .most = LARGEST},
    {"kv-heads", "N", "Heads of keys and values (as many as of queries)", ITH_OPTION_WHOLE, .offset = AT(kv_heads),
     .least = 1, .most = LARGEST},
    {"head-dim", "N", "Head size (64)", ITH_OPTION_WHOLE, .offset = AT(head_dim), .least = 1, .most = LARGEST},
    {"dtype", "f32|bf16|f16", "Type of the tensors (bf16)", ITH_OPTION_WORD, .offset = AT(dtype),
     .word = ith_attend_dtype_word},
    {"mask", "none|lengths|bool|additive",
     "lengths: a number of keys for each batch entry; bool, additive: a mask for each query (none)", ITH_OPTION_WORD,
     .offset = AT(mask), .word = mask_word},
    {"ranks", "N", "Ranks in this process (4; over several processes 1)", ITH_OPTION_WHOLE, .offset = AT(ranks),
     .least = 1, .most = 256},
    {"threads", "N", "Threads, shared out to the ranks (all cores)", ITH_OPTION_WHOLE, .offset = AT(threads),
     .least = 1, .most = ITH_CLI_THREADS_MAX},
    {"kernel", "NAME", "Only this kernel (all that this machine runs)", ITH_OPTION_TEXT, .offset = AT(kernel)},
    ITH_DEVICE_OPTION("attention", AT(device)),
    {"logits", "X",
     "Standard deviation of the logits of the last head; it grows from 1 in the first head (30: the last heads fail "
     "the gate of fixed_m)",
     ITH_OPTION_NUMBER, .offset = AT(logits), .least = 1e-6, .most = 1e6},
    {"seed", "N", "Seed of the random numbers (0)", ITH_OPTION_SEED, .offset = AT(seed)},
    {"json", NULL, "Print one JSON object", ITH_OPTION_FLAG, .offset = AT(json)},
};
#undef AT

static const char doc[] =
    "Compute a random attention problem with every legal combination of strategy, mesh, direction, chunks, fold, "
    "softmax, smoothing, exchange and kernel, and compare each with a float64 softmax."
    "\v"
    "error is the relative L2 difference of o where it comes nearest to its bound. In each head the bound is twice "
    "the error of a plain implementation in the same type (f32 logits, p rounded to the type of v, f32 sums), or the "
    "rounding of o itself if that is more, or 2^-17 over the root of the number of keys; over all heads whose lse "
    "is below 30 it is 2^-8 for bf16, 2^-10 for f16 and 5e-6 for f32. For n numbers each bound is 1 + 8 / "
    "sqrt(n) times as much, because errors of few numbers scatter. lse is the largest difference of lse, relative "
    "where lse is larger than 1. single says whether a ulysses plan gives the bits of a single rank. Every plan is "
    "executed twice, and must give the same bits. The exit status is 1 if any plan fails.";

static const ith_progress_stage stage = {"verify", "plan", 1, ITH_LINES_TENTHS};

/* Fills in the problem for `seq` queries, and the settings of *v from the command line. */
static void describe(const verify_command *c, int64_t seq, ith_verify *v)
{
    const verify_settings *s = c->settings;
    *v = (ith_verify){.context = c->context, .launch = &c->launch, .threads = ith_cli_threads(c->launch.threads)};
    ith_attn_problem *p = &v->first.problem;
    *p = (ith_attn_problem)ITH_ATTN_PROBLEM_INIT;
    p->batch = s->batch, p->heads = s->heads, p->kv_heads = s->kv_heads ? s->kv_heads : s->heads;
    p->head_dim = s->head_dim, p->q_len = seq, p->kv_len = s->kv_seq < 0 ? seq : s->kv_seq;
    p->dtype = s->dtype ? (ith_dtype)s->dtype : ITH_BF16;
    p->has_kv_lengths = s->mask == LENGTHS;
    p->mask = s->mask == BOOL ? ITH_MASK_BOOL : s->mask == ADDITIVE ? ITH_MASK_ADDITIVE : ITH_MASK_NONE;
    p->mask_batch = p->batch, p->mask_heads = p->heads;
    v->kernel = s->kernel;
    v->seed = s->seed, v->deviation = s->logits;
}

/* Makes the next problem and the list of its plans (ith_launch_work.prepare). */
static int prepare(void *user)
{
    verify_command *c = user;
    ith_verify_free(&c->problem);
    describe(c, c->settings->seq.values[c->problems++], &c->problem);
    int code = ith_device_choose(c->context, c->command, c->settings->device);
    if (!code)
        code = ith_cli_prepare_threads(c->launch.ranks, c->launch.threads, 0);
    if (!code)
        code = ith_verify_prepare(&c->problem);
    return code ? code : ith_verify_list(&c->problem);
}

/* ---- Report ------------------------------------------------------------------------------------------------------ */

/* The word for the column "fold"; "-" if the plan exchanges no heads. */
static const char *fold_text(const ith_verify_plan *plan)
{
    return plan->info.ulysses == 1 ? "-" : plan->info.folded ? "yes" : "no";
}

/* The word for the column "smooth"; "-" if the softmax is not fixed_m. */
static const char *smoothing_text(const ith_verify_plan *plan)
{
    return plan->info.softmax != ITH_SOFTMAX_FIXED_M ? "-" : plan->info.smoothed ? "yes" : "no";
}

/* The word for the column "direction"; "-" if the mesh has no ring. */
static const char *direction_text(const ith_verify_plan *plan)
{
    return plan->info.ring == 1 ? "-" : ith_direction_name(plan->info.direction);
}

/* The word for the column "exchange"; "-" for a plan of a single rank. */
static const char *exchange_text(const ith_verify_plan *plan)
{
    return plan->info.ranks == 1 ? "-" : ith_exchange_mode_name(plan->info.exchange);
}

static const char *mask_text(const ith_attn_problem *p)
{
    return p->has_kv_lengths              ? "lengths"
           : p->mask == ITH_MASK_BOOL     ? "bool"
           : p->mask == ITH_MASK_ADDITIVE ? "additive"
                                          : "none";
}

/* Prints the line of a plan: its choices, its errors beside their bounds, and the verdict. */
static void print_plan(const ith_verify_plan *plan)
{
    const ith_plan_info *info = &plan->info;
    char mesh[32];
    snprintf(mesh, sizeof mesh, "%d x %d", info->ulysses, info->ring);
    printf("%-13s %-7s %-9s %6d %-4s %-8s %-6s %-9s %-18s ", ith_strategy_name(info->strategy), mesh,
           direction_text(plan), info->chunks, fold_text(plan), ith_softmax_name(info->softmax), smoothing_text(plan),
           exchange_text(plan), info->kernel);
    if (*plan->why) {
        printf("FAILED: %s\n", plan->why);
        return;
    }
    printf("%9.2e %9.2e %9.2e %-7s %s%s\n", plan->error, plan->bound, plan->lse_error,
           !plan->has_single ? "-"
           : plan->is_single ? "same"
                             : "differs",
           plan->passed ? "ok" : "FAILED", plan->repeats ? "" : ": not the same bits twice");
}

/* Prints the sizes of a problem, and a table with a line for each plan. */
static void print_problem(const ith_verify *v)
{
    const ith_attn_problem *p = &v->first.problem;
    printf("batch %lld, heads %lld (of keys %lld), queries %lld, keys %lld, head size %lld, %s, mask %s, seed %llu\n",
           (long long)p->batch, (long long)p->heads, (long long)p->kv_heads, (long long)p->q_len, (long long)p->kv_len,
           (long long)p->head_dim, ith_dtype_name(p->dtype), mask_text(p), (unsigned long long)v->seed);
    printf("%-13s %-7s %-9s %6s %-4s %-8s %-6s %-9s %-18s %9s %9s %9s %-7s %s\n", "strategy", "u x r", "direction",
           "chunks", "fold", "softmax", "smooth", "exchange", "kernel", "error", "bound", "lse", "single", "verdict");
    for (int i = 0; i < v->count; i++)
        print_plan(&v->plans[i]);
}

/* The choices and the verdict of a plan as a JSON object; NULL if there is no memory. */
static json_t *plan_json(const ith_verify_plan *plan)
{
    const ith_plan_info *info = &plan->info;
    json_t *row = json_pack("{s:s, s:i, s:i, s:i, s:s, s:i, s:b, s:s, s:b, s:s, s:s}", "strategy",
                            ith_strategy_name(info->strategy), "ranks", info->ranks, "ulysses", info->ulysses, "ring",
                            info->ring, "direction", direction_text(plan), "chunks", info->chunks, "fold", info->folded,
                            "softmax", ith_softmax_name(info->softmax), "smoothing", info->smoothed, "exchange",
                            exchange_text(plan), "kernel", info->kernel);
    json_t *verdict = json_pack("{s:o, s:f, s:o, s:f, s:b, s:o, s:s}", "error", ith_cli_json_number(plan->error),
                                "bound", plan->bound, "lse_error", ith_cli_json_number(plan->lse_error), "lse_bound",
                                plan->lse_bound, "repeats", plan->repeats, "same_as_single",
                                plan->has_single ? json_boolean(plan->is_single) : json_null(), "verdict",
                                plan->passed ? "ok" : "failed");
    if (row)
        json_object_update_new(row, verdict);
    if (row && *plan->why)
        json_object_set_new(row, "why", ith_cli_json_text(plan->why));
    return row;
}

/* A problem and the verdicts of its plans as a JSON object. */
static json_t *problem_json(const ith_verify *v)
{
    const ith_attn_problem *p = &v->first.problem;
    json_t *plans = json_array();
    for (int i = 0; i < v->count; i++)
        json_array_append_new(plans, plan_json(&v->plans[i]));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:i, s:o}", "batch", (json_int_t)p->batch, "heads",
                     (json_int_t)p->heads, "kv_heads", (json_int_t)p->kv_heads, "queries", (json_int_t)p->q_len, "keys",
                     (json_int_t)p->kv_len, "head_dim", (json_int_t)p->head_dim, "dtype", ith_dtype_name(p->dtype),
                     "mask", mask_text(p), "failed", ith_verify_failures(v), "plans", plans);
}

static int print_json(json_t *problems, int plans, int failures)
{
    json_t *all = json_pack("{s:s, s:i, s:i, s:O}", "version", ith_version(), "plans", plans, "failed", failures,
                            "problems", problems);
    return ith_cli_json_print(all, "the verdicts", JSON_REAL_PRECISION(6) | JSON_INDENT(1));
}

/* Prints the verdicts of the problem, or keeps them for --json. */
static void report(verify_command *c)
{
    c->plans += c->problem.count;
    c->failures += ith_verify_failures(&c->problem);
    if (c->settings->json)
        json_array_append_new(c->reports, problem_json(&c->problem));
    else
        print_problem(&c->problem);
}

/* Executes and judges all plans of the problem (ith_launch_work.compute). */
static ith_status verify(ith_context *context, ith_comm *comm, void *user)
{
    verify_command *c = user;
    ith_progress progress;
    ith_status status = ITH_OK;
    bool speaks = ith_comm_rank(comm) == 0;
    ith_progress_begin(&progress, &stage, 1, !speaks || !ith_terminal_draws());
    for (int i = 0; i < c->problem.count && !status; i++) {
        status = ith_verify_run(&c->problem, context, comm, i);
        ith_progress_show(&progress, 0, i + 1, c->problem.count);
    }
    ith_progress_end(&progress);
    if (!status && speaks)
        report(c);
    return status;
}

/* Prints the number of plans that failed, or all verdicts as JSON (ith_launch_work.finish). */
static int finish(void *user, int code)
{
    const verify_command *c = user;
    if (!code && c->settings->json)
        code = print_json(c->reports, c->plans, c->failures);
    else if (!code)
        printf("%d plans, %d failed\n", c->plans, c->failures);
    return !code && c->failures ? ITH_EXIT_FAILED : code;
}

/* Runs the command after its options are parsed. */
static int run(const verify_settings *settings, const ith_options *options)
{
    verify_command c = {.settings = settings, .command = options->command};
    const ith_launch_work work = {.command = options->command,
                                  .options = options,
                                  .rounds = settings->seq.count,
                                  .prepare = prepare,
                                  .compute = verify,
                                  .finish = finish,
                                  .user = &c};
    int code = ith_launch_begin(&c.launch, options->command, &settings->launch, ITH_TALK_NORMAL, &c.context);
    if (code)
        return code;
    ith_launch_set_ranks(&c.launch,
                         settings->ranks            ? settings->ranks
                         : c.launch.launcher.module ? 1
                                                    : RANKS_ALONE,
                         settings->threads);
    c.reports = json_array();
    code = ith_launch_run(&c.launch, c.context, ith_options_check(options), &work);
    ith_verify_free(&c.problem);
    json_decref(c.reports);
    ith_context_destroy(&c.context);
    return code;
}

int ith_cli_verify(int argc, char **argv)
{
    verify_settings settings = {.seq = {{131}, 1}, .kv_seq = -1, .batch = 2, .heads = 6, .head_dim = 64, .logits = 30};
    ith_option table[ITH_OPTIONS_MAX];
    memcpy(table, own_rows, sizeof own_rows);
    ith_options options = {.table = table, .settings = &settings, .command = argv[0]};
    options.count =
        ith_launch_add_options(table, sizeof own_rows / sizeof *own_rows, offsetof(verify_settings, launch));
    ith_options_parse(&options, argc, argv, doc, NULL);
    int code = run(&settings, &options);
    ith_options_free(&options);
    return code;
}
