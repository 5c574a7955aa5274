/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca attend: o = softmax(scale q k^T + mask) v for tensors from a file, with any strategy over any number of ranks
 * of this process. */
#include "attend_options.h"
#include "attend_tensors.h"
#include "cli.h"
#include "interrupt.h"
#include "output_name.h"

#include <stdio.h>
#include <string.h>

typedef struct attend_settings {
    const char *input, *output, *strategy;
    ith_attend_choices choices;
    int softmax, precision; /* 0, or 1 for the first word */
    bool plan, quiet;
} attend_settings;

static const char *const precisions[] = {"auto", "bf16", "f32", NULL};

#define AT(member) offsetof(attend_settings, member)
static const ith_option own_rows[] = {
    {"input", "FILE",
     "Tensors q, k and v [batch, sequence, heads, head size] (f32, bf16 or f16; k and v may have fewer heads); also "
     "kv_lengths [batch] (i32), key_bias [batch, keys] (f32), mask [batch or 1, heads or 1, queries, keys] (bool: true "
     "is attended to; f32: added to the scaled logits) and the metadata 'scale' count",
     ITH_OPTION_TEXT, ITH_FROM_COMMAND, AT(input), 0, 0, NULL, 'i'},
    {"output", "FILE", "Where o (of q's type) and lse (f32, [batch, heads, sequence], natural logarithm) are written",
     ITH_OPTION_TEXT, ITH_FROM_COMMAND, AT(output), 0, 0, NULL, 'o'},
    {"strategy", "NAME", "auto, single, ulysses, ring, ulysses_ring, or a name of maxdiffusion's", ITH_OPTION_TEXT,
     ITH_FROM_COMMAND, AT(strategy), 0, 0, NULL, 0},
    {"softmax", "auto|online|fixed_m", "A running maximum, or an offset from norms of q and k", ITH_OPTION_WORD,
     ITH_FROM_COMMAND, AT(softmax), 0, 0, ith_attend_softmaxes, 0},
    {"precision", "auto|bf16|f32",
     "bf16 rounds q, k and v to bf16 and adds up in f32; f32 widens them; auto takes them as they are", ITH_OPTION_WORD,
     ITH_FROM_COMMAND, AT(precision), 0, 0, precisions, 0},
    {"plan", NULL, "Print the plan that was chosen on standard error", ITH_OPTION_FLAG, ITH_FROM_COMMAND, AT(plan), 0,
     0, NULL, 0},
    {"quiet", NULL, "Do not print how long it took", ITH_OPTION_FLAG, ITH_FROM_COMMAND, AT(quiet), 0, 0, NULL, 'q'},
};
#undef AT

static const char doc[] =
    "Attention on tensors read from a .safetensors file: o = softmax(scale q k^T + mask) v."
    "\v"
    "Names of maxdiffusion's strategies may also set direction and softmax (ulysses_custom_fixed_m, "
    "ulysses_ring_custom_bidir); --direction and --softmax count more. The sequence is shared out to the ranks; "
    "any number of ranks, heads and rows will do.";

typedef struct attend_job {
    ith_attend_tensors tensors;
    ith_attn_options options;
    char plan[4096];
    double seconds;
} attend_job;

static ith_status attend(ith_context *context, ith_comm *comm, void *user)
{
    attend_job *job = user;
    int rank = ith_comm_rank(comm);
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, &job->tensors.whole.problem, &job->options, comm, &plan);
    if (!status && rank == 0)
        ith_plan_print(plan, job->plan, sizeof job->plan);
    double start = ith_cli_seconds();
    ith_attn_tensors share = ith_attend_share(&job->tensors.whole, ith_comm_size(comm), rank);
    if (!status)
        status = ith_plan_execute(plan, &share);
    if (rank == 0)
        job->seconds = ith_cli_seconds() - start;
    ith_plan_destroy(&plan);
    return status;
}

static int compute(ith_context *context, const attend_settings *settings, attend_job *job)
{
    int ranks = settings->choices.ranks ? (int)settings->choices.ranks : 1;
    if (ith_run_ranks(context, ranks, (int)settings->choices.threads, attend, job))
        return ith_cli_error("%s", ith_context_error(context));
    ith_attend_gather_lse(&job->tensors.whole, ranks);
    size_t length = strlen(job->plan);
    if (settings->plan)
        fprintf(stderr, "%s%s", job->plan, length && job->plan[length - 1] == '\n' ? "" : "\n");
    if (!settings->quiet)
        fprintf(stderr, "attention in %.4f s\n", job->seconds);
    return ITH_EXIT_DONE;
}

static int check_outputs(const attend_settings *settings)
{
    static const char *const options[] = {"--output", "--trace", "--wisdom"};
    const char *const paths[] = {settings->output, settings->choices.trace, settings->choices.wisdom};
    int code = ith_cli_check_output(settings->output);
    return code ? code : ith_cli_check_distinct(paths, options, sizeof paths / sizeof *paths);
}

static int run(ith_context *context, const attend_settings *settings, const char *command)
{
    static const ith_dtype types[] = {ITH_DTYPE_NONE, ITH_DTYPE_NONE, ITH_BF16, ITH_F32};
    attend_job job = {.seconds = 0};
    int code =
        ith_attend_choose(context, command, &settings->choices, settings->strategy, settings->softmax, &job.options);
    if (!code)
        code = check_outputs(settings);
    if (!code)
        code = ith_attend_begin(context, &settings->choices);
    if (!code)
        code = ith_attend_read(context, settings->input, types[settings->precision], &job.tensors);
    if (!code)
        code = compute(context, settings, &job);
    ith_interrupt_defer(); /* what is written now is written whole */
    if (!code)
        code = ith_attend_end(context, &settings->choices);
    if (!code)
        code = ith_attend_write(context, settings->output, &job.tensors, job.plan);
    ith_attend_close(&job.tensors);
    return code;
}

int ith_cli_attend(int argc, char **argv)
{
    attend_settings settings = {0};
    ith_option table[ITH_OPTIONS_MAX];
    memcpy(table, own_rows, sizeof own_rows);
    ith_options options = {.table = table, .settings = &settings, .command = argv[0]};
    options.count =
        ith_attend_add_options(table, sizeof own_rows / sizeof *own_rows, offsetof(attend_settings, choices));
    ith_options_parse(&options, argc, argv, doc, NULL);
    ith_context *context = NULL;
    int code = ITH_EXIT_DONE;
    if (!settings.input || !settings.output)
        code = ith_cli_usage(argv[0], "--%s is needed", settings.input ? "output" : "input");
    if (!code)
        code = ith_cli_context(settings.quiet ? ITH_TALK_QUIET : ITH_TALK_NORMAL, &context);
    if (!code)
        code = run(context, &settings, argv[0]);
    ith_context_destroy(&context);
    ith_options_free(&options);
    return code;
}
