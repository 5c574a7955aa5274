/* ithaca attend: o = softmax(scale q k^T + mask) v for tensors from a file, with any strategy over any number of ranks
 * of this process. */
#include "attend_tensors.h"
#include "cli.h"
#include "option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct attend_settings {
    const char *input, *output, *strategy, *kernel;
    int64_t ranks, ulysses, ring, threads;
    int precision; /* index into precisions + 1 */
    bool quiet;
} attend_settings;

static const char *const precisions[] = {"auto", "bf16", "f32", NULL};

#define AT(member) offsetof(attend_settings, member)
static const ith_option table[] = {
    {"input", "FILE",
     "Tensors q, k and v [batch, sequence, heads, head size]; also kv_lengths [batch] (i32), mask "
     "[batch or 1, 1, 1, keys] (bool or f32) and the metadata 'scale' count",
     ITH_OPTION_TEXT, ITH_FROM_COMMAND, AT(input), 0, 0, NULL, 'i'},
    {"output", "FILE", "Where o (of q's type) and lse (f32, [batch, heads, sequence]) are written", ITH_OPTION_TEXT,
     ITH_FROM_COMMAND, AT(output), 0, 0, NULL, 'o'},
    {"strategy", "NAME", "auto, single, ulysses, ring or ulysses_ring", ITH_OPTION_TEXT, ITH_FROM_COMMAND, AT(strategy),
     0, 0, NULL, 0},
    {"ranks", "N", "Ranks in this process (1)", ITH_OPTION_WHOLE, ITH_FROM_COMMAND, AT(ranks), 1, 1024, NULL, 0},
    {"ulysses", "N", "Ranks along the ulysses axis of the mesh", ITH_OPTION_WHOLE, ITH_FROM_COMMAND, AT(ulysses), 1,
     1024, NULL, 0},
    {"ring", "N", "Ranks along the ring axis of the mesh", ITH_OPTION_WHOLE, ITH_FROM_COMMAND, AT(ring), 1, 1024, NULL,
     0},
    {"threads", "N", "Threads, shared out to the ranks (all cores)", ITH_OPTION_WHOLE, ITH_FROM_COMMAND, AT(threads), 1,
     65536, NULL, 0},
    {"kernel", "NAME", "A kernel that 'ithaca info' lists (the fastest)", ITH_OPTION_TEXT, ITH_FROM_COMMAND, AT(kernel),
     0, 0, NULL, 0},
    {"precision", "auto|bf16|f32", "Compute in the stored type, or in this one (auto)", ITH_OPTION_WORD,
     ITH_FROM_COMMAND, AT(precision), 0, 0, precisions, 0},
    {"quiet", NULL, "Do not print the plan", ITH_OPTION_FLAG, ITH_FROM_COMMAND, AT(quiet), 0, 0, NULL, 'q'},
};
#undef AT

static const char doc[] = "Attention on tensors read from a .safetensors file: o = softmax(scale q k^T + mask) v.";

typedef struct attend_job {
    ith_attend_tensors tensors;
    ith_attn_options options;
    float *lse_shares; /* the ranks' lse, one after the other */
    char plan[512];
    double seconds;
} attend_job;

/* A rank's tensors: its rows where they lie in the whole ones. */
static ith_attn_tensors share_of(const attend_job *job, int ranks, int rank)
{
    const ith_attend_tensors *t = &job->tensors;
    const ith_attn_problem *p = &t->problem;
    int64_t bytes = ith_dtype_bytes(p->dtype), q_begin, kv_begin, count;
    ith_share(p->q_len, ranks, rank, &q_begin, &count);
    ith_share(p->kv_len, ranks, rank, &kv_begin, &count);
    return (ith_attn_tensors){.q = (const char *)t->q + q_begin * p->q_row_stride * bytes,
                              .k = (const char *)t->k + kv_begin * p->k_row_stride * bytes,
                              .v = (const char *)t->v + kv_begin * p->v_row_stride * bytes,
                              .o = (char *)t->o + q_begin * p->o_row_stride * bytes,
                              .lse = job->lse_shares + p->batch * p->heads * q_begin,
                              .key_bias = t->key_bias};
}

static ith_status attend(ith_context *context, ith_comm *comm, void *user)
{
    attend_job *job = user;
    int rank = ith_comm_rank(comm);
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, &job->tensors.problem, &job->options, comm, &plan);
    if (!status && rank == 0)
        ith_plan_print(plan, job->plan, sizeof job->plan);
    double start = ith_cli_seconds();
    ith_attn_tensors share = share_of(job, ith_comm_size(comm), rank);
    if (!status)
        status = ith_plan_execute(plan, &share);
    if (rank == 0)
        job->seconds = ith_cli_seconds() - start;
    ith_plan_destroy(&plan);
    return status;
}

/* [B, H, share] of every rank to [B, H, Sq]. */
static void gather_lse(attend_job *job, int ranks)
{
    const ith_attn_problem *p = &job->tensors.problem;
    int64_t rows = p->batch * p->heads;
    for (int rank = 0; rank < ranks; rank++) {
        int64_t begin, count;
        ith_share(p->q_len, ranks, rank, &begin, &count);
        const float *share = job->lse_shares + rows * begin;
        for (int64_t row = 0; row < rows; row++)
            memcpy(job->tensors.lse + row * p->q_len + begin, share + row * count, (size_t)count * sizeof *share);
    }
}

static int compute(ith_context *context, const attend_settings *settings, attend_job *job)
{
    const ith_attn_problem *p = &job->tensors.problem;
    int ranks = settings->ranks ? (int)settings->ranks : 1;
    job->lse_shares = calloc((size_t)(p->batch * p->heads * p->q_len), sizeof *job->lse_shares);
    if (!job->lse_shares)
        return ith_cli_error("there is no memory for lse");
    if (ith_run_ranks(context, ranks, (int)settings->threads, attend, job))
        return ith_cli_error("%s", ith_context_error(context));
    gather_lse(job, ranks);
    if (!settings->quiet)
        fprintf(stderr, "%s\nattention in %.4f s\n", job->plan, job->seconds);
    return ITH_EXIT_DONE;
}

static int run(ith_context *context, const attend_settings *settings, const char *command)
{
    static const ith_dtype types[] = {ITH_DTYPE_NONE, ITH_DTYPE_NONE, ITH_BF16, ITH_F32};
    attend_job job = {.options = ITH_ATTN_OPTIONS_INIT};
    job.options.ulysses = (int)settings->ulysses;
    job.options.ring = (int)settings->ring;
    job.options.kernel = settings->kernel;
    if (settings->strategy && ith_strategy_parse(context, settings->strategy, &job.options.strategy))
        return ith_cli_usage(command, "--strategy: %s", ith_context_error(context));
    int code = ith_attend_read(context, settings->input, types[settings->precision], &job.tensors);
    if (!code)
        code = compute(context, settings, &job);
    if (!code)
        code = ith_attend_write(context, settings->output, &job.tensors, job.plan);
    ith_attend_free(&job.tensors);
    free(job.lse_shares);
    return code;
}

int ith_cli_attend(int argc, char **argv)
{
    attend_settings settings = {0};
    ith_options options = {
        .table = table, .count = sizeof table / sizeof *table, .settings = &settings, .command = argv[0]};
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
