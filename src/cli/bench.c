/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca bench attention: makes a table with a row for each combination of sizes, strategies and softmaxes, measures
 * the rows (bench_run.c), and prints the table as text or as JSON. The commands `ithaca bench block` and `ithaca bench
 * decode` begin here too (bench_engine.c). */
#include "bench_rows.h"

#include "attend_options.h"
#include "bench_engine.h"
#include "cli.h"
#include "json_number.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The values of the command's options and of its argument. */
typedef struct bench_settings {
    const char *what, *strategies; /* the argument WHAT; names of strategies, separated by commas */
    ith_option_list seq, batch, softmax;
    int64_t heads, kv_heads, head_dim, repeats;
    int dtype;
    ith_attend_choices choices;
    bool json;
} bench_settings;

#define LARGEST 1e7 /* upper limit of options without a natural maximum */
#define AT(member) offsetof(bench_settings, member)
static const ith_option own_rows[] = {
    {"seq", "N[,N..]", "Queries and keys (8192)", ITH_OPTION_WHOLES, ITH_FROM_CONFIG, AT(seq), 1, LARGEST, NULL, 0},
    {"batch", "N[,N..]", "Batch (1)", ITH_OPTION_WHOLES, ITH_FROM_CONFIG, AT(batch), 1, LARGEST, NULL, 0},
    {"heads", "N", "Heads (8)", ITH_OPTION_WHOLE, ITH_FROM_CONFIG, AT(heads), 1, LARGEST, NULL, 0},
    {"kv-heads", "N", "Heads of keys and values (as many as of queries)", ITH_OPTION_WHOLE, ITH_FROM_CONFIG,
     AT(kv_heads), 1, LARGEST, NULL, 0},
    {"head-dim", "N", "Head size (128)", ITH_OPTION_WHOLE, ITH_FROM_CONFIG, AT(head_dim), 1, LARGEST, NULL, 0},
    {"dtype", "bf16|f32|f16", "Type of the tensors (bf16)", ITH_OPTION_WORD, ITH_FROM_CONFIG, AT(dtype), 0, 0,
     ith_attend_dtype_word, 0},
    {"strategy", "S[,S..]", "Names as 'ithaca attend' takes them (auto); single is one rank with all threads",
     ITH_OPTION_NAMES, ITH_FROM_CONFIG, AT(strategies), 0, 0, NULL, 0},
    {"softmax", "S[,S..]", "auto, online, fixed_m (auto)", ITH_OPTION_WORDS, ITH_FROM_CONFIG, AT(softmax), 0, 0,
     ith_attend_softmax_word, 0},
    {"repeat", "N", "Times that each row is run after a first one to warm up (5)", ITH_OPTION_WHOLE, ITH_FROM_CONFIG,
     AT(repeats), 1, 1000, NULL, 0},
    {"json", NULL, "Print a JSON array, an object for each row", ITH_OPTION_FLAG, ITH_FROM_CONFIG, AT(json), 0, 0, NULL,
     0},
};
#undef AT

static const char doc[] =
    "Measure attention on random tensors: a row for each combination of the lists. WHAT is 'attention'. Parts of the "
    "engine have commands of their own: see 'ithaca bench block --help' and 'ithaca bench decode --help'."
    "\v"
    "Rows take turns, one repeat of each after the other, so that a machine that slows down slows all of them. "
    "seconds is the median of the repeats, from the moment all ranks begin to the end of the last, and spread the "
    "difference of the slowest and the fastest over it; gflops counts 4 B H Sq Skv D operations. peak names "
    "the instructions that the kernel multiplies with (bf16_amx/6: six products of bf16 on AMX for each of f32), "
    "peak_gflops is what they can do at most, measured after each repeat on as many threads, and share_of_peak is "
    "gflops over it. kernel_from says how the kernel was chosen. rel_l2 compares 16 rows "
    "of each head with float64. memory is what the plans of all ranks hold, predicted and measured; sent_bytes is "
    "what the rank that sends most sends in one execution; hidden is the share of the time of exchanges during "
    "which ranks computed.";

/* Stores the argument WHAT. If WHAT is given twice, stores instead a text that the command later refuses. */
static int take_what(void *user, char *text)
{
    bench_settings *settings = user;
    if (!settings->what)
        settings->what = text;
    else
        settings->what = "more than one thing";
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
    ith_bench bench;
} bench_command;

/* Fills in the options, the ranks and the predicted plan of a row whose problem and name are set. */
static int describe_row(const ith_bench *bench, const bench_settings *s, const char *command, int64_t softmax,
                        ith_bench_row *row)
{
    ith_attend_choices choices = s->choices;
    choices.strategy = row->name, choices.asked.softmax = (ith_softmax)softmax;
    int code = ith_attend_choose(bench->context, command, &choices, &row->options);
    if (code)
        return code;
    row->ranks = bench->ranks;
    if (row->options.strategy == ITH_STRATEGY_SINGLE)
        row->ranks = 1, row->options.ulysses = row->options.ring = 0;
    else
        row->options.process_ranks = bench->process_ranks, row->options.host_ranks = bench->host_ranks;
    row->seconds = calloc((size_t)bench->repeats, sizeof *row->seconds);
    row->peaks = calloc((size_t)bench->repeats, sizeof *row->peaks);
    if (!row->seconds || !row->peaks)
        return ith_cli_error("there is no memory for %d repeats", bench->repeats);
    row->info = (ith_plan_info)ITH_PLAN_INFO_INIT;
    if (ith_plan_predict(bench->context, &row->problem->whole.problem, &row->options, row->ranks, 0, bench->alone,
                         &row->info))
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
        if (!bench->leads)
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

/* ---- Report ------------------------------------------------------------------------------------------------------ */

/* The printed numbers of one row of the table. The text `doc` explains each of them. */
typedef struct figures {
    double seconds, spread, gflops, peak_gflops, share_of_peak, hidden;
    bool has_hidden; /* whether the ranks exchanged data, so that `hidden` has a value */
} figures;

/* Compares two doubles for qsort. */
static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values and returns their median. */
static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Computes the figures of a row. median() sorts row->seconds, so the first is the shortest and the last the longest. */
static figures figures_of(const ith_bench *bench, const ith_bench_row *row)
{
    int n = bench->repeats;
    figures f = {.seconds = median(row->seconds, n), .peak_gflops = median(row->peaks, n)};
    f.spread = (row->seconds[n - 1] - row->seconds[0]) / f.seconds;
    f.gflops = 1e-9 * ith_attend_operations(&row->problem->whole.problem) / f.seconds;
    f.share_of_peak = f.peak_gflops > 0 ? f.gflops / f.peak_gflops : 0;
    f.has_hidden = row->exchange_seconds > 0;
    f.hidden = f.has_hidden ? 1 - row->waiting_seconds / row->exchange_seconds : 0;
    return f;
}

/* Prints the table, a line for each row. The text `doc` explains the columns. */
static void print_table(const ith_bench *bench)
{
    printf("%-24s %-7s %-8s %-15s %-8s %5s %7s %5s %4s %-5s %10s %7s %9s %-25s %9s %7s %9s %9s %9s %9s %7s\n",
           "strategy", "u x r", "softmax", "kernel", "from", "batch", "seq", "heads", "dim", "dtype", "seconds",
           "spread", "GFLOP/s", "peak", "GFLOP/s", "share", "rel_l2", "MB", "MB pred.", "MB sent", "hidden");
    for (int i = 0; i < bench->row_count; i++) {
        const ith_bench_row *row = &bench->rows[i];
        const ith_attn_problem *p = &row->problem->whole.problem;
        figures f = figures_of(bench, row);
        char mesh[32], hidden[16] = "-";
        snprintf(mesh, sizeof mesh, "%d x %d", row->info.ulysses, row->info.ring);
        if (f.has_hidden)
            snprintf(hidden, sizeof hidden, "%.1f%%", 100 * f.hidden);
        printf("%-24s %-7s %-8s %-15s %-8s %5lld %7lld %5lld %4lld %-5s %10.4f %6.1f%% %9.1f %-25s %9.1f %6.1f%% %9.2e "
               "%9.1f %9.1f "
               "%9.1f %7s\n",
               row->name, mesh, ith_softmax_name(row->info.softmax), row->kernel,
               ith_kernel_origin_name(row->info.kernel_origin), (long long)p->batch, (long long)p->q_len,
               (long long)p->heads, (long long)p->head_dim, ith_dtype_name(p->dtype), f.seconds, 100 * f.spread,
               f.gflops, row->peak, f.peak_gflops, 100 * f.share_of_peak, row->rel_l2, 1e-6 * (double)row->held_bytes,
               1e-6 * (double)row->predicted_bytes, 1e-6 * (double)row->sent_bytes, hidden);
        if (row->info.compress)
            printf("  compressed to %s: messages changed by %.1e (relative error)\n",
                   ith_compress_name((ith_compress)row->info.compress), row->compression_error);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

/* The sizes and the type of a problem as a JSON object. */
static json_t *problem_json(const ith_attn_problem *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:s}", "batch", (json_int_t)p->batch, "seq", (json_int_t)p->q_len,
                     "heads", (json_int_t)p->heads, "kv_heads", (json_int_t)p->kv_heads, "head_dim",
                     (json_int_t)p->head_dim, "dtype", ith_dtype_name(p->dtype));
}

/* The choices of a row's plan as a JSON object. */
static json_t *plan_json(const ith_bench *bench, const ith_bench_row *row)
{
    const ith_plan_info *info = &row->info;
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:i, s:b, s:s, s:b, s:s, s:s, s:s}", "name", row->name,
                     "strategy", ith_strategy_name(info->strategy), "ranks", row->ranks, "threads", bench->threads,
                     "ulysses", info->ulysses, "ring", info->ring, "direction", ith_direction_name(info->direction),
                     "chunks", info->chunks, "fold", info->folded, "softmax", ith_softmax_name(info->softmax),
                     "smoothing", info->smoothed, "exchange", ith_exchange_mode_name(info->exchange), "kernel",
                     row->kernel, "kernel_from", ith_kernel_origin_name(info->kernel_origin));
}

/* The block sizes of a plan as a JSON object. */
static json_t *tiles_json(const ith_plan_info *info)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "block_q", (json_int_t)info->block_q, "block_kv",
                     (json_int_t)info->block_kv, "block_kv_compute", (json_int_t)info->block_kv_compute,
                     "block_kv_compute_in", (json_int_t)info->block_kv_compute_in);
}

/* The measured figures of a row as a JSON object; `hidden_share` is null if nothing was exchanged. */
static json_t *figures_json(const ith_bench *bench, const ith_bench_row *row)
{
    figures f = figures_of(bench, row);
    return json_pack("{s:f, s:s, s:f, s:f, s:f, s:f, s:o, s:I, s:I, s:I, s:o, s:s, s:f}", "gflops", f.gflops, "peak",
                     row->peak, "peak_gflops", f.peak_gflops, "share_of_peak", f.share_of_peak, "seconds", f.seconds,
                     "spread", f.spread, "rel_l2", ith_cli_json_number(row->rel_l2), "memory_bytes",
                     (json_int_t)row->held_bytes, "predicted_memory_bytes", (json_int_t)row->predicted_bytes,
                     "sent_bytes", (json_int_t)row->sent_bytes, "hidden_share",
                     f.has_hidden ? json_real(f.hidden) : json_null(), "compress",
                     ith_compress_name((ith_compress)row->info.compress), "compression_error", row->compression_error);
}

/* Prints the rows as a JSON array, one object on each line. */
static int print_json(const ith_bench *bench)
{
    for (int i = 0; i < bench->row_count; i++) {
        const ith_bench_row *row = &bench->rows[i];
        json_t *object = plan_json(bench, row);
        if (object) {
            json_object_update_new(object, tiles_json(&row->info));
            json_object_update_new(object, problem_json(&row->problem->whole.problem));
            json_object_update_new(object, figures_json(bench, row));
        }
        fputs(i ? ",\n " : "[", stdout);
        int failed = !object || json_dumpf(object, stdout, JSON_REAL_PRECISION(6));
        json_decref(object);
        if (failed)
            return ith_cli_error("the rows cannot be written as JSON");
    }
    puts("]");
    return ITH_EXIT_DONE;
}

/* ---- Command --------------------------------------------------------------------------------------------------- */

/* Makes the rows and their tensors (ith_launch_work.prepare). */
static int prepare(void *user)
{
    bench_command *c = user;
    ith_bench *bench = &c->bench;
    const bench_settings *s = c->settings;
    bench->threads_here = c->launch.threads ? c->launch.threads : omp_get_max_threads();
    bench->threads = c->launch.all_threads ? c->launch.all_threads : bench->threads_here;
    bench->ranks = c->launch.all_ranks;
    bench->alone = c->launch.all_ranks == c->launch.ranks;
    bench->leads = c->launch.leads;
    bench->process_ranks = c->launch.process_ranks, bench->host_ranks = c->launch.host_ranks;
    bench->repeats = (int)s->repeats;
    int code = ith_attend_begin(bench->context, &s->choices, &c->launch);
    if (!code)
        code = add_problems(bench, s, c->command);
    return code ? code : make_tensors(bench);
}

/* Measures the rows (ith_launch_work.compute). */
static ith_status measure(ith_context *context, ith_comm *comm, void *user)
{
    static const ith_progress_stage stage = {"bench", "run", 1, ITH_LINES_TENTHS};
    bench_command *c = user;
    bool speaks = ith_comm_rank(comm) == 0;
    if (speaks)
        ith_progress_begin(&c->bench.progress, &stage, 1, !isatty(STDERR_FILENO));
    ith_status status = ith_bench_run(&c->bench, context, comm);
    if (speaks)
        ith_progress_end(&c->bench.progress);
    return status;
}

/* Writes the wisdom and prints the rows (ith_launch_work.finish). */
static int finish(void *user, int code)
{
    const bench_command *c = user;
    if (!code)
        code = ith_attend_end(c->bench.context, &c->settings->choices);
    if (!code && c->settings->json)
        code = print_json(&c->bench);
    else if (!code)
        print_table(&c->bench);
    return code;
}

/* Runs the command after its options are parsed. */
static int run(const bench_settings *settings, const ith_options *options)
{
    bench_command c = {.settings = settings, .command = options->command};
    const ith_launch_work work = {.command = options->command,
                                  .options = options,
                                  .prepare = prepare,
                                  .compute = measure,
                                  .finish = finish,
                                  .user = &c};
    int code = ith_launch_begin(&c.launch, options->command, &settings->choices.launch);
    if (code)
        return code;
    ith_launch_set_ranks(&c.launch, settings->choices.ranks, settings->choices.threads);
    code = ith_options_check(options);
    int made = ith_cli_context(ITH_TALK_NORMAL, &c.bench.context);
    code = ith_launch_run(&c.launch, c.bench.context, code ? code : made, &work);
    bench_free(&c.bench);
    ith_context_destroy(&c.bench.context);
    return code;
}

/* Runs a command of its own if its name is the first argument. Returns false otherwise. */
static bool run_engine_bench(int argc, char **argv, int *code)
{
    static const struct {
        const char *what;
        int (*run)(int argc, char **argv);
    } commands[] = {{"block", ith_cli_bench_block}, {"decode", ith_cli_bench_decode}};
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
    ith_options options = {.table = table, .settings = &settings, .command = argv[0], .take_argument = take_what};
    options.count =
        ith_attend_add_options(table, sizeof own_rows / sizeof *own_rows, offsetof(bench_settings, choices), true);
    ith_options_parse(&options, argc, argv, doc, "WHAT");
    int code = ITH_EXIT_DONE;
    if (!settings.what)
        code = ith_cli_usage(argv[0], "what to measure is needed: attention, block or decode");
    else if (strcmp(settings.what, "attention") != 0)
        code = ith_cli_usage(argv[0],
                             "'%s' is nothing that can be measured; 'attention' is, and, as the first argument, "
                             "'block' and 'decode' are",
                             settings.what);
    if (!code)
        code = run(&settings, &options);
    ith_options_free(&options);
    return code;
}
