/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_attend TRANSPORT RANKS ALL SEED PLANS: random plans of attention on ALL ranks, in processes of RANKS ranks that a
 * launcher has started. Each process first computes them on ALL ranks of its own. The bits of both must be equal. */
#include <ithaca/transport.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 16, WATCHDOG_SECONDS = 280 };

static uint32_t mix(uint32_t seed, uint32_t i)
{
    uint32_t h = (seed * 0x9e3779b9u) ^ (i * 0x85ebca6bu);
    h = (h ^ (h >> 15)) * 0x2c1b3c6du;
    return h ^ (h >> 12);
}

/* A problem, a plan of it, and whole tensors: q, k, v [rows][columns] of floats or 16-bit numbers. */
typedef struct random_plan {
    ith_attn_problem problem;
    ith_attn_options options;
    int64_t q_row, kv_row, size; /* elements of a row of q and o; of k and v; bytes of an element */
    char *q, *k, *v, *o;         /* o: the output of ranks of one process */
    float *key_bias;
    int32_t length; /* kv_lengths of the only batch entry */
} random_plan;

typedef struct job {
    random_plan *plans;
    int count, all;
    bool local;         /* keep the output, otherwise compare with it */
    _Atomic int *mixed; /* counts the plans that use the ulysses axis in place and send messages along the ring */
} job;

static void *numbers(uint32_t seed, int64_t count, ith_dtype dtype)
{
    float *all = calloc((size_t)count, sizeof *all);
    uint16_t *half = (uint16_t *)all;
    for (int64_t i = 0; all && i < count; i++) {
        uint32_t bits = mix(seed, (uint32_t)i);
        if (dtype == ITH_F32)
            all[i] = (float)(bits % 4001) / 1000.0f - 2.0f;
        else /* any sign, any fraction, an exponent of 1/8 to 2 */
            half[i] = (uint16_t)(dtype == ITH_BF16 ? (bits & 0x807f) | (124 + (bits >> 16) % 4) << 7
                                                   : (bits & 0x83ff) | (12 + (bits >> 16) % 4) << 10);
    }
    return all;
}

/* Draws the mesh of a plan, whose ulysses axis divides the kv heads. */
static void draw_mesh(uint32_t seed, int all, ith_attn_options *options, int64_t kv_heads)
{
    int ulysses = 1;
    for (int u = 1; u <= all; u++)
        if (all % u == 0 && kv_heads % u == 0 && mix(seed, (uint32_t)u) % 2)
            ulysses = u;
    options->ulysses = ulysses;
    options->ring = all / ulysses;
    options->strategy = all == 1         ? ITH_STRATEGY_SINGLE
                        : ulysses == all ? ITH_STRATEGY_ULYSSES
                        : ulysses == 1   ? ITH_STRATEGY_RING
                                         : ITH_STRATEGY_ULYSSES_RING;
    options->direction = options->ring > 1 && mix(seed, 20) % 2 ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
    options->chunks = 1 + (int)(mix(seed, 21) % 3);
    options->softmax = mix(seed, 22) % 3 ? ITH_SOFTMAX_ONLINE : ITH_SOFTMAX_FIXED_M;
    options->threads = 1;
}

static bool draw(uint32_t seed, int all, random_plan *p)
{
    static const int dims[] = {16, 64, 80, 128};
    static const ith_dtype dtypes[] = {ITH_F32, ITH_BF16, ITH_F16};
    *p = (random_plan){.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT};
    ith_attn_problem *problem = &p->problem;
    problem->kv_heads = 1 + mix(seed, 1) % 6;
    problem->heads = problem->kv_heads * (1 + mix(seed, 2) % 2);
    problem->head_dim = dims[mix(seed, 3) % 4];
    problem->q_len = 1 + mix(seed, 4) % 400;
    problem->kv_len = 1 + mix(seed, 5) % 400;
    problem->dtype = dtypes[mix(seed, 6) % 3];
    problem->has_kv_lengths = mix(seed, 7) % 3 == 0;
    problem->has_key_bias = mix(seed, 8) % 3 == 0;
    draw_mesh(seed, all, &p->options, problem->kv_heads);
    p->size = problem->dtype == ITH_F32 ? 4 : 2;
    p->q_row = problem->heads * problem->head_dim, p->kv_row = problem->kv_heads * problem->head_dim;
    p->q = numbers(seed + 1, problem->q_len * p->q_row, problem->dtype);
    p->k = numbers(seed + 2, problem->kv_len * p->kv_row, problem->dtype);
    p->v = numbers(seed + 3, problem->kv_len * p->kv_row, problem->dtype);
    p->o = calloc((size_t)(problem->q_len * p->q_row), (size_t)p->size);
    p->key_bias = numbers(seed + 4, problem->kv_len, ITH_F32);
    p->length = (int32_t)(mix(seed, 9) % (uint32_t)(problem->kv_len + 1));
    return p->q && p->k && p->v && p->o && p->key_bias;
}

/* Computes this rank's part of the output. */
static ith_status attend(ith_context *context, ith_comm *comm, const random_plan *p, char *o, _Atomic int *mixed)
{
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    int64_t q_first, kv_first, rows;
    ith_plan *plan = NULL;
    ith_share(p->problem.kv_len, ith_comm_size(comm), ith_comm_rank(comm), &kv_first, &rows);
    ith_share(p->problem.q_len, ith_comm_size(comm), ith_comm_rank(comm), &q_first, &rows);
    tensors.q = p->q + q_first * p->q_row * p->size;
    tensors.k = p->k + kv_first * p->kv_row * p->size, tensors.v = p->v + kv_first * p->kv_row * p->size;
    tensors.o = o;
    tensors.kv_lengths = p->problem.has_kv_lengths ? &p->length : NULL;
    tensors.key_bias = p->problem.has_key_bias ? p->key_bias : NULL;
    ith_status status = ith_plan_create(context, &p->problem, &p->options, comm, &plan);
    for (int i = 0; i < 2 && !status; i++)
        status = ith_plan_execute(plan, &tensors);
    if (!status)
        status = ith_plan_describe(plan, &info);
    *mixed += info.exchange == ITH_EXCHANGE_MIXED;
    ith_plan_destroy(&plan);
    return status;
}

static ith_status attend_all(ith_context *context, ith_comm *comm, void *user)
{
    const job *j = user;
    ith_status status = ith_comm_size(comm) == j->all ? ITH_OK : ITH_ERR_INTERNAL;
    for (int i = 0; i < j->count && !status; i++) {
        const random_plan *p = &j->plans[i];
        int64_t first, rows;
        ith_share(p->problem.q_len, j->all, ith_comm_rank(comm), &first, &rows);
        char *kept = p->o + first * p->q_row * p->size, *o = kept;
        size_t bytes = (size_t)(rows * p->q_row * p->size);
        if (!j->local && (o = malloc(bytes + 1)) == NULL)
            return ITH_ERR_MEMORY;
        status = attend(context, comm, p, o, j->mixed);
        if (!status && memcmp(o, kept, bytes)) {
            fprintf(stderr, "rank %d: plan %d (%s, %d x %d): other bits\n", ith_comm_rank(comm), i,
                    ith_strategy_name(p->options.strategy), p->options.ulysses, p->options.ring);
            status = ITH_ERR_NUMERIC;
        }
        if (!j->local)
            free(o);
    }
    return status;
}

int main(int argc, char **argv)
{
    ith_context *context = NULL;
    if (argc != 6 || ith_context_create(NULL, &context))
        return 2;
    alarm(WATCHDOG_SECONDS);
    uint32_t seed = (uint32_t)atoi(argv[4]);
    _Atomic int mixed = 0; /* counted on all ranks of this process */
    job j = {.count = atoi(argv[5]), .all = atoi(argv[3]), .local = true, .mixed = &mixed};
    j.plans = calloc((size_t)j.count, sizeof *j.plans);
    for (int i = 0; i < j.count; i++)
        if (!j.plans || !draw(seed + 100 * (uint32_t)i, j.all, &j.plans[i]))
            return 2;
    ith_status status = ith_run_ranks(context, j.all, j.all, attend_all, &j);
    j.local = false;
    if (!status)
        status = ith_run_ranks_connected(context, argv[1], NULL, atoi(argv[2]), 1, attend_all, &j);
    if (status)
        fprintf(stderr, "%s: %s\n", ith_status_name(status), ith_context_error(context));
    else
        printf("%d plans on %d ranks, %d mixed: equal bits\n", j.count, j.all, mixed / atoi(argv[2]));
    for (int i = 0; i < j.count; i++) {
        const random_plan *p = &j.plans[i];
        free(p->q), free(p->k), free(p->v), free(p->o), free(p->key_bias);
    }
    free(j.plans);
    ith_context_destroy(&context);
    return status != ITH_OK;
}
