/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca bench attention: makes a table with a row for each combination of sizes, strategies and softmaxes, measures
 * the rows (bench_run.c), and prints them (bench_report.c). The other benchmarks begin here too (bench_engine.c). */
#include "bench_rows.h"

#include "../cli.h"
#include "../launch/launch_records.h"
#include "../launch/thread_limit.h"
#include "../option/complaint.h"
#include "../shared_option/attend_options.h"
#include "../shared_option/device_option.h"
#include "bench_engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The values of the command's options and of its argument. */
typedef struct bench_settings {
    const char *machine, *device;  /* the values of --machine and --device; NULL if not given */
    const char *what, *strategies; /* the argument WHAT; names of strategies, separated by commas */
    const char *second;            /* a second argument WHAT; NULL if not given */
    ith_option_list seq, batch, softmax;
    int64_t heads, kv_heads, head_dim, repeats;
    int64_t trace_batch; /* 0: the trace holds everything */
    int dtype;
    ith_attend_choices choices;
    ith_bench_output output;
    bool suite;
} bench_settings;

#define SUITE_RANKS 4 /* ranks of --suite */
#define LARGEST 1e7   /* upper limit of options without a natural maximum */
#define AT(member) offsetof(bench_settings, member)
static const ith_option own_rows[] = {
    {"seq", "N[,N..]", "Queries and keys (8192)", ITH_OPTION_WHOLES, .offset = AT(seq), .least = 1, .most = LARGEST},
    {"batch", "N[,N..]", "Batch (1)", ITH_OPTION_WHOLES, .offset = AT(batch), .least = 1, .most = LARGEST},
    {"heads", "N", "Heads (8)", ITH_OPTION_WHOLE, .offset = AT(heads), .least = 1, .most = LARGEST},
    {"kv-heads", "N", "Heads of keys and values (as many as of queries)", ITH_OPTION_WHOLE, .offset = AT(kv_heads),
     .least = 1, .most = LARGEST},
    {"head-dim", "N", "Head size (128)", ITH_OPTION_WHOLE, .offset = AT(head_dim), .least = 1, .most = LARGEST},
    {"dtype", "bf16|f32|f16", "Type of the tensors (bf16)", ITH_OPTION_WORD, .offset = AT(dtype),
     .word = ith_attend_dtype_word},
    {"strategy", "S[,S..]",
     "Names as 'ithaca attend' takes them; single is one rank with all threads; NAME:N exchanges N chunks of heads; "
     "NAME_unhidden is the plan with --no-overlap (auto)",
     ITH_OPTION_NAMES, .offset = AT(strategies)},
    {"softmax", "S[,S..]", "auto, online, fixed_m (auto)", ITH_OPTION_WORDS, .offset = AT(softmax),
     .word = ith_attend_softmax_word},
    {"repeat", "N", "Times that each row is run after a first one to warm up (5)", ITH_OPTION_WHOLE,
     .offset = AT(repeats), .least = 1, .most = 1000},
    {"suite", NULL,
     "Every strategy at batch sizes 1, 2, 4 and 8, on 4 ranks, at 4096 tokens, as far as --strategy, --batch, --ranks "
     "and --seq are not given",
     ITH_OPTION_FLAG, .offset = AT(suite)},
    ITH_DEVICE_OPTION("attention", AT(device)),
    {"machine", "NAME|FILE",
     "Predict by the description of this machine, as 'ithaca plan' takes it (by 'ithaca tune', or measured now)",
     ITH_OPTION_TEXT, .offset = AT(machine)},
    {"trace-batch", "N", "Record in --trace only the rows with this batch, one more execution of each",
     ITH_OPTION_WHOLE, .offset = AT(trace_batch), .least = 1, .most = LARGEST},
};
#undef AT

static const char doc[] =
    "Measure attention on random tensors: a row for each combination of the lists. WHAT is 'attention'. The engine "
    "has benchmarks of its own: see 'ithaca bench block --help', 'ithaca bench decode --help', 'ithaca bench encode "
    "--help' and 'ithaca bench generate --help'."
    "\v"
    "Rows take turns, one repeat of each after the other, so that a machine that slows down slows all of them. "
    "seconds is the median of the repeats; a repeat lasts from the moment all ranks begin to the end of the last rank. "
    "spread is the difference of the slowest and the fastest repeat over seconds; predicted is the time that the cost "
    "model predicts (see 'ithaca plan'); plan is the time to make the plan, once; gflops counts 4 B H Sq Skv D "
    "operations. peak names the instructions with which the kernel multiplies (bf16_amx/6: six products of bf16 on AMX "
    "for each product of f32), peak_gflops is their highest rate, measured after each repeat on as many threads, and "
    "share_of_peak is gflops over it. "
    "kernel_from says how the kernel was chosen. rel_l2 compares 16 rows of each head with float64. On a device "
    "nothing is predicted, and the peak is the rate of large matrix products there: its rows name the device and the "
    "memory of it that the plans hold. memory is the memory of the plans of all ranks, predicted and measured; "
    "sent_bytes are the bytes that one rank sends in one execution, at most; hidden is the share of the time of "
    "exchanges during which ranks computed.";

/* Stores the argument WHAT. A second one is kept, and the command later refuses it. */
static int take_what(void *user, char *text)
{
    bench_settings *settings = user;
    if (!settings->what)
        settings->what = text;
    else
        settings->second = text;
    return 0;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

/* Copies the next name of a comma-separated list from *at and moves *at behind it. Returns false at the end of the
 * list. */
static bool next_name(const char **at, char *name, size_t bytes)
{
    if (!*at)
        return false;
    size_t length = strcspn(*at, ",");
    snprintf(name, bytes, "%.*s", (int)length, *at);
    *at = (*at)[length] ? *at + length + 1 : NULL;
    return true;
}

/* The number of names in a comma-separated list. */
static int name_count(const char *names)
{
    int count = 1;
    for (; *names; names++)
        count += *names == ',';
    return count;
}

/* The command in this process. */
typedef struct bench_command {
    const bench_settings *settings;
    const char *command;
    ith_launch launch;
    ith_bench_output output;
    ith_bench bench;
} bench_command;

/* Splits "STRATEGY[_unhidden][:CHUNKS]". Copies STRATEGY to `strategy`, sets *no_overlap if "_unhidden" is there, and
 * sets *chunks if CHUNKS is there. Returns false if CHUNKS is no number. */
static bool split_name(const char *name, char *strategy, size_t bytes, int *chunks, bool *no_overlap)
{
    static const char end[] = "_unhidden";
    const char *colon = strchr(name, ':');
    const size_t whole = colon ? (size_t)(colon - name) : strlen(name), tail = sizeof end - 1;
    const bool unhidden = whole > tail && !strncmp(name + whole - tail, end, tail);
    int length = 0, found = 0;
    snprintf(strategy, bytes, "%.*s", (int)(unhidden ? whole - tail : whole), name);
    *no_overlap |= unhidden;
    if (!colon)
        return true;
    bool good = sscanf(colon, ":%9d%n", &found, &length) == 1 && !colon[length] && found > 0;
    *chunks = good ? found : *chunks;
    return good;
}

/* Fills in the options, the ranks and the predicted plan of a row whose problem and name are set. */
static int describe_row(const ith_bench *bench, const bench_settings *s, const char *command, int64_t softmax,
                        ith_bench_row *row)
{
    ith_attend_choices choices = s->choices;
    char strategy[sizeof row->name];
    choices.strategy = strategy, choices.asked.softmax = (ith_softmax)softmax;
    if (!split_name(row->name, strategy, sizeof strategy, &choices.asked.chunks, &choices.no_overlap))
        return ith_cli_usage(command, "--strategy: '%s' is not NAME:N, N chunks of heads", row->name);
    int code = ith_attend_choose(bench->context, command, &choices, &row->options);
    if (code)
        return code;
    row->ranks = bench->launch->all_ranks, row->predicted_seconds = NAN;
    if (row->options.strategy == ITH_STRATEGY_SINGLE)
        row->ranks = 1, row->options.ulysses = row->options.ring = 0;
    else
        ith_launch_place(bench->launch, &row->options);
    row->seconds = calloc((size_t)bench->repeats, sizeof *row->seconds);
    row->peaks = calloc((size_t)bench->repeats, sizeof *row->peaks);
    if (!row->seconds || !row->peaks)
        return ith_cli_error("there is no memory for %d repeats", bench->repeats);
    row->info = (ith_plan_info)ITH_PLAN_INFO_INIT;
    if (ith_plan_predict(bench->context, &row->problem->whole.problem, &row->options, row->ranks, 0,
                         ith_launch_is_alone(bench->launch), &row->info))
        return ith_cli_error("%s: %s", row->name, ith_context_error(bench->context));
    return ITH_EXIT_DONE;
}

/* Fills in the problem for one sequence length and one batch size. */
static void describe_problem(const bench_settings *s, int64_t seq, int64_t batch, ith_attn_problem *p)
{
    *p = (ith_attn_problem)ITH_ATTN_PROBLEM_INIT;
    p->batch = batch, p->q_len = p->kv_len = seq;
    p->heads = s->heads, p->kv_heads = s->kv_heads ? s->kv_heads : s->heads;
    p->head_dim = s->head_dim;
    p->dtype = s->dtype ? (ith_dtype)s->dtype : ITH_BF16;
}

/* Adds the rows of one problem to the table: one for each pair of a strategy and a softmax. */
static int add_rows(ith_bench *bench, const bench_settings *s, const char *command, ith_bench_problem *problem)
{
    const char *names = s->strategies;
    char name[sizeof bench->rows->name];
    int code = ITH_EXIT_DONE;
    while (!code && next_name(&names, name, sizeof name))
        for (int i = 0; !code && i < s->softmax.count; i++) {
            ith_bench_row *row = &bench->rows[bench->row_count++];
            row->problem = problem;
            memcpy(row->name, name, sizeof name);
            code = describe_row(bench, s, command, s->softmax.values[i], row);
        }
    return code;
}

/* Makes a problem for each pair of a sequence length and a batch size, and adds its rows to the table. */
static int add_problems(ith_bench *bench, const bench_settings *s, const char *command)
{
    int most = s->seq.count * s->batch.count;
    bench->problems = calloc((size_t)most, sizeof *bench->problems);
    bench->rows = calloc((size_t)(most * name_count(s->strategies) * s->softmax.count), sizeof *bench->rows);
    if (!bench->problems || !bench->rows)
        return ith_cli_error("there is no memory for the rows");
    int code = ITH_EXIT_DONE;
    for (int i = 0; !code && i < most; i++) {
        ith_bench_problem *problem = &bench->problems[bench->problem_count++];
        describe_problem(s, s->seq.values[i / s->batch.count], s->batch.values[i % s->batch.count],
                         &problem->whole.problem);
        code = add_rows(bench, s, command, problem);
    }
    return code;
}

/* Makes the random tensors of each problem. In the process of rank 0 computes some rows of its result in float64. */
static int make_tensors(ith_bench *bench)
{
    static const int64_t sample_rows = 16; /* rows of each head that are compared with float64 */
    for (int i = 0; i < bench->problem_count; i++) {
        ith_bench_problem *x = &bench->problems[i];
        const ith_attn_problem *p = &x->whole.problem;
        int code = ith_attend_make_random(bench->context, (uint64_t)i, 1, &x->whole);
        if (code)
            return code;
        if (!bench->launch->leads)
            continue;
        if (!ith_oracle_rows_create(p, sample_rows, &x->exact) || !ith_oracle_rows_create(p, sample_rows, &x->found) ||
            !ith_oracle_exact(&x->whole.problem, &x->whole.tensors, &x->exact))
            return ith_cli_error("there is no memory for the results in float64");
    }
    return ITH_EXIT_DONE;
}

static void bench_free(ith_bench *bench)
{
    for (int i = 0; i < bench->row_count; i++)
        free(bench->rows[i].seconds), free(bench->rows[i].peaks);
    for (int i = 0; i < bench->problem_count; i++) {
        ith_attend_free(&bench->problems[i].whole);
        ith_oracle_rows_free(&bench->problems[i].exact);
        ith_oracle_rows_free(&bench->problems[i].found);
    }
    free(bench->rows);
    free(bench->problems);
}

/* ---- Command --------------------------------------------------------------------------------------------------- */

/* Makes the rows and their tensors (ith_launch_work.prepare). */
static int prepare(void *user)
{
    bench_command *c = user;
    ith_bench *bench = &c->bench;
    const bench_settings *s = c->settings;
    bench->threads_here = ith_cli_threads(c->launch.threads);
    bench->threads = c->launch.all_threads ? c->launch.all_threads : bench->threads_here;
    bench->repeats = (int)s->repeats, bench->trace_batch = s->trace_batch;
    bench->launch = &c->launch;
    int code = ith_device_choose(bench->context, c->command, s->device);
    bench->on_device = ith_device_in_use(bench->context, &bench->device);
    if (!code)
        code = ith_attend_begin(bench->context, &s->choices, &c->launch, 0);
    if (!code && c->launch.leads)
        code = ith_bench_output_begin(&c->output, c->command);
    if (!code)
        code = add_problems(bench, s, c->command);
    bench->measures_machine = !ith_launch_is_alone(&c->launch) && !s->machine && !bench->on_device;
    if (!code && c->launch.leads && !bench->measures_machine && !bench->on_device)
        code = ith_bench_predict(bench, s->machine);
    if (!code && ith_records_restart(&c->launch, bench->context)) /* the trace holds no measurement of the machine */
        code = ith_cli_error("%s", ith_context_error(bench->context));
    return code ? code : make_tensors(bench);
}

/* Measures the rows (ith_launch_work.compute). */
static ith_status measure(ith_context *context, ith_comm *comm, void *user)
{
    static const ith_progress_stage stage = {"bench", "run", 1, ITH_LINES_TENTHS};
    bench_command *c = user;
    bool speaks = ith_comm_rank(comm) == 0;
    if (speaks)
        ith_progress_begin(&c->bench.progress, &stage, 1, !ith_terminal_draws());
    ith_status status = ith_bench_run(&c->bench, context, comm);
    if (speaks)
        ith_progress_end(&c->bench.progress);
    return status;
}

/* Reports the rows and writes the wisdom (ith_launch_work.finish). */
static int finish(void *user, int code)
{
    const bench_command *c = user;
    if (code)
        return code;
    code = ith_bench_report_rows(&c->bench, &c->output);
    const int saved = ith_attend_end(c->bench.context, &c->settings->choices);
    return code ? code : saved;
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

/* Sets the options that --suite chooses and the user left open. */
static void fill_suite(const bench_settings *settings, ith_options *options)
{
    static const struct {
        const char *option, *value;
    } chosen[] = {
        {"strategy", "single,ulysses,ring,ulysses_ring,ulysses:2,ulysses_fixed_m,ring_bidir,ulysses_ring_bidir"},
        {"batch", "1,2,4,8"},
        {"seq", "4096"}};
    char why[64];
    for (size_t i = 0; settings->suite && i < sizeof chosen / sizeof *chosen; i++)
        ith_option_set(options, ith_option_find(options, chosen[i].option), chosen[i].value, ITH_FROM_RULE, why,
                       sizeof why);
}

/* Sets the options that the user left open to the choices of the plan, if there is a single row, on one process. */
static int fill_plan(const bench_settings *s, bench_command *c, ith_options *options)
{
    ith_bench *bench = &c->bench;
    const int threads = ith_cli_threads(s->choices.threads);
    if (s->seq.count * s->batch.count * s->softmax.count * name_count(s->strategies) > 1 ||
        !ith_launcher_is_alone(s->choices.launch.transport))
        return ITH_EXIT_DONE;
    c->launch = (ith_launch){.ranks = s->choices.ranks ? (int)s->choices.ranks : 1, .leads = true};
    c->launch.all_ranks = c->launch.ranks;
    bench->launch = &c->launch, bench->repeats = 1;
    int code = ith_cli_context(ITH_TALK_QUIET, &bench->context);
    if (!code)
        code = ith_device_choose(bench->context, c->command, s->device);
    if (!code)
        code = ith_attend_begin(bench->context, &s->choices, &c->launch, 0);
    if (!code)
        code = add_problems(bench, s, c->command);
    if (code)
        return code;
    ith_bench_row *row = bench->rows;
    row->options.threads = threads > row->ranks ? threads / row->ranks : 1;
    return ith_attend_fill(bench->context, &row->problem->whole.problem, &row->options, row->ranks, options);
}

/* Prints the options that are in force (--print-config). A plan that is not legal is named on standard error. */
static int print_config(const bench_settings *s, ith_options *options)
{
    bench_command c = {.settings = s, .command = options->command};
    int code = ith_options_check(options);
    if (code)
        return code;
    ith_error_hold(true);
    if (fill_plan(s, &c, options))
        ith_error_print("the choices of the plan are left open: %s", ith_error_held());
    ith_error_release();
    bench_free(&c.bench);
    ith_context_destroy(&c.bench.context);
    ith_options_printed(options);
    return ITH_EXIT_DONE;
}

/* The ranks of this process. --suite makes as many as a mesh of two axes needs, if the process is alone. */
static int64_t count_ranks(const bench_settings *settings, const ith_launch *launch)
{
    bool chosen = settings->choices.ranks || !settings->suite || launch->launcher.module;
    return chosen ? settings->choices.ranks : SUITE_RANKS;
}

/* Checks that the options go together. Returns an exit status. */
static int check(const bench_settings *s, const ith_options *options)
{
    int code = ith_options_check(options);
    if (!code && s->trace_batch && !s->choices.launch.trace)
        code = ith_cli_usage(options->command, "--trace-batch needs --trace");
    if (!code && s->machine && s->device && strcmp(s->device, "cpu") != 0)
        code = ith_cli_usage(options->command,
                             "--machine describes processors: nothing predicts the time of --device %s", s->device);
    bool listed = !s->trace_batch;
    for (int i = 0; i < s->batch.count; i++)
        listed |= s->batch.values[i] == s->trace_batch;
    if (!code && !listed)
        code = ith_cli_usage(options->command, "--trace-batch is %lld, which is no batch that --batch lists",
                             (long long)s->trace_batch);
    return code;
}

/* Runs the command after its options are parsed. */
static int run(const bench_settings *settings, const ith_options *options)
{
    bench_command c = {.settings = settings, .command = options->command, .output = settings->output};
    const ith_launch_work work = {.command = options->command,
                                  .options = options,
                                  .prepare = prepare,
                                  .compute = measure,
                                  .finish = finish,
                                  .user = &c};
    int code =
        ith_launch_begin(&c.launch, options->command, &settings->choices.launch, ITH_TALK_NORMAL, &c.bench.context);
    if (code)
        return code;
    ith_launch_set_ranks(&c.launch, count_ranks(settings, &c.launch), settings->choices.threads);
    code = ith_launch_run(&c.launch, c.bench.context, check(settings, options), &work);
    bench_free(&c.bench);
    ith_bench_output_free(&c.output);
    ith_context_destroy(&c.bench.context);
    return code;
}

/* If the first argument is block, decode, encode or generate, runs this subcommand and returns true. */
static bool run_engine_bench(int argc, char **argv, int *code)
{
    static const struct {
        const char *what;
        int (*run)(int argc, char **argv);
    } commands[] = {{"block", ith_cli_bench_block},
                    {"decode", ith_cli_bench_decode},
                    {"encode", ith_cli_bench_encode},
                    {"generate", ith_cli_bench_generate}};
    char name[64];
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(argv[1], commands[i].what)) {
            snprintf(name, sizeof name, "%s %s", argv[0], commands[i].what);
            argv[1] = name;
            *code = commands[i].run(argc - 1, argv + 1);
            return true;
        }
    return false;
}

int ith_cli_bench(int argc, char **argv)
{
    int engine_code;
    if (run_engine_bench(argc, argv, &engine_code))
        return engine_code;
    bench_settings settings = {.strategies = "auto",
                               .seq = {{8192}, 1},
                               .batch = {{1}, 1},
                               .softmax = {{0}, 1},
                               .heads = 8,
                               .head_dim = 128,
                               .repeats = 5};
    ith_option table[ITH_OPTIONS_MAX];
    memcpy(table, own_rows, sizeof own_rows);
    ith_options options = {
        .table = table, .settings = &settings, .command = argv[0], .take_argument = take_what, .prints_itself = true};
    options.count =
        ith_attend_add_options(table, sizeof own_rows / sizeof *own_rows, offsetof(bench_settings, choices), true);
    options.count = ith_bench_output_add_options(table, options.count, offsetof(bench_settings, output));
    ith_options_parse(&options, argc, argv, doc, "WHAT");
    fill_suite(&settings, &options);
    int code = ITH_EXIT_DONE;
    if (options.print)
        code = print_config(&settings, &options);
    else if (options.failure[0]) /* the processes of a run agree on it */
        code = run(&settings, &options);
    else if (!settings.what)
        code = ith_cli_usage(argv[0], "name the measurement: attention, block, decode, encode or generate");
    else if (settings.second)
        code = ith_cli_usage(argv[0], "one thing is measured at a time: leave out '%s' or '%s'", settings.what,
                             settings.second);
    else if (strcmp(settings.what, "attention") != 0)
        code = ith_cli_usage(argv[0],
                             "'%s' is nothing that can be measured; 'attention' is, and, as the first argument, "
                             "'block', 'decode', 'encode' and 'generate' are",
                             settings.what);
    else
        code = run(&settings, &options);
    ith_options_free(&options);
    return code;
}
