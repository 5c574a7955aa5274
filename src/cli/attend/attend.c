/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca attend: computes o = softmax(scale q k^T + bias) v for tensors in a file, with any strategy and any number of
 * ranks and processes. The process of rank 0 reads and writes the files. */
#include "../cli.h"
#include "../file/output_name.h"
#include "../shared_option/attend_options.h"
#include "../shared_option/device_option.h"
#include "attend_device.h"
#include "attend_file.h"
#include "attend_transfer.h"

#include <ithaca/wan.h>

#include <stdio.h>
#include <string.h>

/* The values of the command's options. */
typedef struct attend_settings {
    const char *input, *output, *device;
    ith_attend_choices choices;
    ith_precision precision;
    bool plan, quiet;
} attend_settings;

ITH_OPTION_WORD_OF(precision)

#define AT(member) offsetof(attend_settings, member)
static const ith_option own_rows[] = {
    {"input", "FILE",
     "Tensors q, k and v [batch, sequence, heads, head size] (f32, bf16 or f16; k and v may have fewer heads); also "
     "kv_lengths [batch] (i32), key_bias [batch, keys] (f32), mask [batch or 1, heads or 1, queries, keys] (bool: true "
     "is attended to; f32: added to the scaled logits) and the metadata 'scale', if the file has them",
     ITH_OPTION_TEXT, .offset = AT(input), .letter = 'i'},
    {"output", "FILE", "Where o (of q's type) and lse (f32, [batch, heads, sequence], natural logarithm) are written",
     ITH_OPTION_TEXT, .offset = AT(output), .letter = 'o'},
    {"precision", "auto|bf16|f32",
     "bf16 rounds q, k and v to bf16 and adds up in f32; f32 widens them; auto takes them as they are", ITH_OPTION_WORD,
     .offset = AT(precision), .word = precision_word},
    ITH_DEVICE_OPTION("attention", AT(device)),
    {"plan", NULL, "Print the plan that was chosen on standard error", ITH_OPTION_FLAG, .offset = AT(plan)},
    {"quiet", NULL, "Do not print how long it took", ITH_OPTION_FLAG, .offset = AT(quiet), .letter = 'q'},
};
#undef AT

static const char doc[] =
    "Attention on tensors read from a .safetensors file: o = softmax(scale q k^T + mask) v."
    "\v"
    "Names of maxdiffusion's strategies may also set direction and softmax (ulysses_custom_fixed_m, "
    "ulysses_ring_custom_bidir); --direction and --softmax count more. The sequence is shared out to the ranks; "
    "any number of ranks, heads and rows will do.";

/* One execution in this process: inputs and results, which its ranks share. */
typedef struct attend_job {
    const attend_settings *settings;
    const ith_options *table; /* the options and their sources */
    ith_context *context;
    ith_launch launch;
    ith_attend_file tensors;
    ith_attn_options options;
    char plan[4096];          /* the plan as text, written by rank 0 */
    bool complete;            /* the results are written */
    double compression_error; /* of the messages of rank 0 */
    double seconds;           /* duration of the execution on rank 0 */
} attend_job;

/* Checks that each output file can be written, and that it is neither another output nor an input. */
static int check_outputs(const attend_settings *settings, const char *config)
{
    enum { OUTPUTS = 4, ALL = 6 };
    static const char *const options[ALL] = {"--output",        "--trace", "--wisdom",
                                             "--flight-record", "--input", "--config"};
    const char *const paths[ALL] = {settings->output,
                                    settings->choices.launch.trace,
                                    ith_attend_wisdom_file(&settings->choices),
                                    settings->choices.launch.flight_record,
                                    settings->input,
                                    config};
    int code = ith_cli_check_output(settings->output);
    return code ? code : ith_cli_check_distinct(paths, options, ALL, OUTPUTS);
}

/* Checks the options and, in the process of rank 0, reads the tensors (ith_launch_work.prepare). */
static int prepare(void *user)
{
    static const ith_dtype types[] = {ITH_DTYPE_NONE, ITH_F32, ITH_BF16}; /* indexed by ith_precision */
    attend_job *job = user;
    const attend_settings *settings = job->settings;
    int code = ith_device_choose(job->context, job->table->command, settings->device);
    if (!code)
        code = ith_attend_choose(job->context, job->table->command, &settings->choices, &job->options);
    if (!code && job->launch.leads)
        code = check_outputs(settings, job->table->config);
    if (!code)
        code = ith_attend_begin(job->context, &settings->choices, &job->launch, 0);
    if (!code && job->launch.leads)
        code = ith_attend_file_read(job->context, settings->input, types[settings->precision], &job->tensors);
    if (!code && job->launch.leads && !settings->quiet)
        ith_attend_file_warn(&job->tensors);
    return code;
}

/* Creates the plan and executes it once (ith_launch_work.compute). */
static ith_status attend(ith_context *context, ith_comm *comm, void *user)
{
    attend_job *job = user;
    ith_attend_whole *whole = &job->tensors.whole;
    int rank = ith_comm_rank(comm);
    ith_plan *plan = NULL;
    ith_attend_placed placed = {.memory_count = 0};
    ith_status status = ith_attend_scatter(whole, comm);
    if (!status)
        status = ith_launch_fail(comm, ith_attend_place(context, whole, ith_comm_size(comm), rank, &placed));
    if (!status)
        status = ith_plan_create(context, &placed.problem, &job->options, comm, &plan);
    if (!status && rank == 0)
        ith_plan_print(plan, job->plan, sizeof job->plan);
    double start = ith_cli_seconds();
    if (!status)
        status = ith_launch_execute(comm, plan, &placed.tensors);
    if (rank == 0)
        job->seconds = ith_cli_seconds() - start;
    ith_plan_counters counters = ITH_PLAN_COUNTERS_INIT;
    if (!status && rank == 0 && !ith_plan_count(plan, &counters))
        job->compression_error = counters.compression_error;
    ith_plan_destroy(&plan);
    if (!status)
        status = ith_launch_fail(comm, ith_attend_bring_back(&placed));
    ith_attend_leave(&placed);
    return status ? status : ith_attend_gather(whole, comm);
}

/* Prints the plan (--plan) and the duration (unless --quiet), and writes the results and the wisdom
 * (ith_launch_work.finish). */
static int finish(void *user, int code)
{
    attend_job *job = user;
    const attend_settings *settings = job->settings;
    if (code)
        return code;
    ith_attend_gather_lse(&job->tensors.whole, job->launch.all_ranks);
    size_t length = strlen(job->plan);
    if (settings->plan)
        fprintf(stderr, "%s%s", job->plan, length && job->plan[length - 1] == '\n' ? "" : "\n");
    if (job->compression_error > 0 && !settings->quiet)
        fprintf(stderr, "compression changed the messages of rank 0 by %.1e (relative error)\n",
                job->compression_error);
    if (!settings->quiet)
        fprintf(stderr, "attention in %.4f s\n", job->seconds);
    code = ith_attend_file_write(job->context, settings->output, &job->tensors, job->plan);
    job->complete = !code;
    const int saved = ith_attend_end(job->context, &settings->choices);
    return code ? code : saved;
}

/* Runs the command after its options are parsed. */
static int run(const attend_settings *settings, const ith_options *options)
{
    attend_job job = {.settings = settings, .table = options};
    const ith_launch_work work = {.command = options->command,
                                  .options = options,
                                  .prepare = prepare,
                                  .compute = attend,
                                  .finish = finish,
                                  .user = &job};
    int code = ith_launch_begin(&job.launch, options->command, &settings->choices.launch,
                                settings->quiet ? ITH_TALK_QUIET : ITH_TALK_NORMAL, &job.context);
    if (code)
        return code;
    code = ith_options_check(options);
    if (!code && (!settings->input || !settings->output))
        code = ith_cli_usage(options->command, "--%s is needed", settings->input ? "output" : "input");
    ith_launch_set_ranks(&job.launch, settings->choices.ranks, settings->choices.threads);
    code = ith_launch_run(&job.launch, job.context, code, &work);
    if (code && job.complete) /* a trace or the wisdom could not be written */
        fprintf(stderr, "The results are complete: %s\n", settings->output);
    ith_attend_file_close(&job.tensors);
    ith_context_destroy(&job.context);
    return code;
}

int ith_cli_attend(int argc, char **argv)
{
    attend_settings settings = {0};
    ith_option table[ITH_OPTIONS_MAX];
    memcpy(table, own_rows, sizeof own_rows);
    ith_options options = {.table = table, .settings = &settings, .command = argv[0]};
    options.count =
        ith_attend_add_options(table, sizeof own_rows / sizeof *own_rows, offsetof(attend_settings, choices), false);
    ith_options_parse(&options, argc, argv, doc, NULL);
    int code = run(&settings, &options);
    ith_options_free(&options);
    return code;
}
