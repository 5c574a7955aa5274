/* Packing and running a shard on all threads. */
#include "sweep.h"

#include "../base/size.h"

#include <omp.h>
#include <string.h>

#define ALIGNMENT 64
#define TASKS_PER_THREAD 8 /* blocks of queries between two packings, so that threads end at nearly the same time */

struct ith_sweep {
    const ith_attn_setting *setting;
    const ith_attn_kernel *kernel;
    ith_sweep_shape shape;
    int64_t head_dim, queries_per_key; /* heads / kv_heads */
    int64_t q_blocks;
    int64_t together;                 /* key problems packed at a time */
    int64_t run_bytes, problem_bytes; /* packed: a run, all runs of a key problem */
    char *packed;
    int64_t thread_bytes; /* scratch, then o_sum, m and l of a block unless they are kept */
    int64_t state_bytes;
    char *threads;
    float *o_sum, *m, *l; /* [problems, q_rows, head_dim], [problems, q_rows]: kept between shards */
};

void ith_key_problems(const ith_attn_problem *problem, int64_t first, int64_t count, int64_t *first_keys,
                      int64_t *keys_count)
{
    int64_t queries_per_key = problem->heads / problem->kv_heads;
    *first_keys = first / queries_per_key;
    *keys_count = count ? (first + count - 1) / queries_per_key + 1 - *first_keys : 0;
}

static int64_t runs_of(const ith_sweep *sweep, int64_t keys)
{
    return ith_div_up(keys, sweep->kernel->kv_block);
}

/* How much is packed at a time: as little as keeps the threads busy. */
static ith_status size_packing(ith_sweep *s)
{
    int64_t tasks = ith_max64(s->queries_per_key * s->q_blocks, 1);
    int64_t wanted = s->setting->threads > 1 ? (int64_t)s->setting->threads * TASKS_PER_THREAD : 1;
    s->together = ith_max64(ith_min64(ith_div_up(wanted, tasks), s->shape.keys_count), 1);
    int64_t bytes = s->kernel->packed_bytes(ith_min64(s->kernel->kv_block, s->shape.most_keys), s->head_dim);
    if (bytes < 0)
        return ith_fail(s->setting->context, ITH_ERR_MEMORY, "packed keys and values are more than a size can hold");
    s->run_bytes = ith_round_up(bytes, ALIGNMENT);
    if (!ith_size_mul(runs_of(s, s->shape.most_keys), s->run_bytes, &s->problem_bytes))
        return ith_fail(s->setting->context, ITH_ERR_MEMORY, "packed keys and values are more than a size can hold");
    return ITH_OK;
}

static ith_status allocate(ith_sweep *s)
{
    ith_context *context = s->setting->context;
    int64_t rows = s->shape.problems * s->shape.q_rows;
    s->packed = ith_alloc(context, s->together, s->problem_bytes, "packed keys and values");
    s->threads = ith_alloc(context, s->setting->threads, s->thread_bytes, "the scratch memory of attention");
    if (!s->packed || !s->threads)
        return ITH_ERR_MEMORY;
    if (!s->shape.several_shards)
        return ITH_OK;
    s->o_sum = ith_alloc(context, rows, s->head_dim * (int64_t)sizeof(float), "the partial results of attention");
    s->m = ith_alloc(context, rows, sizeof(float), "the partial results of attention");
    s->l = ith_alloc(context, rows, sizeof(float), "the partial results of attention");
    return s->o_sum && s->m && s->l ? ITH_OK : ITH_ERR_MEMORY;
}

ith_status ith_sweep_create(const ith_attn_setting *setting, const ith_sweep_shape *shape, ith_sweep **out)
{
    *out = NULL;
    ith_sweep *s = ith_alloc_zero(setting->context, 1, sizeof *s, "a sweep");
    if (!s)
        return ITH_ERR_MEMORY;
    s->setting = setting;
    s->kernel = setting->kernel;
    s->shape = *shape;
    s->head_dim = setting->problem.head_dim;
    s->queries_per_key = setting->problem.heads / setting->problem.kv_heads;
    s->q_blocks = ith_div_up(shape->q_rows, s->kernel->q_block);
    int64_t scratch = ith_round_up(s->kernel->scratch_bytes(s->head_dim), ALIGNMENT);
    int64_t state = s->kernel->q_block * (s->head_dim + 2) * (int64_t)sizeof(float);
    s->state_bytes = shape->several_shards ? 0 : ith_round_up(state, ALIGNMENT);
    s->thread_bytes = scratch + s->state_bytes;
    ith_status status = size_packing(s);
    if (!status)
        status = allocate(s);
    if (status)
        ith_sweep_destroy(&s);
    *out = s;
    return status;
}

void ith_sweep_destroy(ith_sweep **sweep)
{
    ith_sweep *s = *sweep;
    if (!s)
        return;
    ith_context *context = s->setting->context;
    ith_free(context, s->packed);
    ith_free(context, s->threads);
    ith_free(context, s->o_sum);
    ith_free(context, s->m);
    ith_free(context, s->l);
    ith_free(context, s);
    *sweep = NULL;
}

static void *head_at(const ith_sweep *s, const ith_rows *rows, int64_t problem, int64_t row)
{
    int64_t element =
        problem / rows->heads * rows->batch_stride + row * rows->row_stride + problem % rows->heads * s->head_dim;
    return ith_element_at(s->setting, rows->data, element);
}

/* Packs run number `run` of key problem `problem`, the slot-th of those packed together. */
static void pack_run(const ith_sweep *s, const ith_shard *shard, int64_t problem, int64_t slot, int64_t run)
{
    const ith_attn_problem *p = &s->setting->problem;
    int64_t begin = run * s->kernel->kv_block;
    int64_t entry = (s->shape.first_keys + problem) / p->kv_heads;
    ith_attn_pack pack = {
        .dtype = p->dtype,
        .keys = ith_min64(s->kernel->kv_block, shard->keys - begin),
        .head_dim = s->head_dim,
        .k = head_at(s, &shard->k, problem, begin),
        .v = head_at(s, &shard->v, problem, begin),
        .k_stride = shard->k.row_stride,
        .v_stride = shard->v.row_stride,
        .key_bias = shard->key_bias ? shard->key_bias + entry * p->kv_len + begin : NULL,
        .packed = s->packed + slot * s->problem_bytes + run * s->run_bytes,
    };
    s->kernel->pack(&pack);
}

/* Passes one block of queries over all packed runs of its keys. */
static void run_block(const ith_sweep *s, const ith_shard *shard, int64_t problem, int64_t block, int64_t slot,
                      char *thread)
{
    int64_t begin = block * s->kernel->q_block, rows = ith_min64(s->kernel->q_block, s->shape.q_rows - begin);
    int64_t runs = runs_of(s, shard->keys), at = problem * s->shape.q_rows + begin;
    float *own = (float *)(void *)(thread + s->thread_bytes - s->state_bytes);
    ith_attn_run run = {
        .dtype = s->setting->problem.dtype,
        .q_rows = rows,
        .head_dim = s->head_dim,
        .q = head_at(s, &shard->q, problem, begin),
        .q_stride = shard->q.row_stride,
        .packed = s->packed + slot * s->problem_bytes,
        .scale = s->setting->problem.scale,
        .o_sum = s->o_sum ? s->o_sum + at * s->head_dim : own,
        .m = s->m ? s->m + at : own + s->kernel->q_block * s->head_dim,
        .l = s->l ? s->l + at : own + s->kernel->q_block * (s->head_dim + 1),
        .o = head_at(s, &shard->o, problem, begin),
        .o_stride = shard->o.row_stride,
        .lse = shard->lse ? shard->lse + at : NULL,
        .scratch = thread,
    };
    for (int64_t i = 0; i < ith_max64(runs, 1); i++) { /* a shard without keys may still be the first or the last */
        run.keys = ith_min64(s->kernel->kv_block, shard->keys - i * s->kernel->kv_block);
        run.first = shard->first && i == 0;
        run.last = shard->last && i >= runs - 1;
        s->kernel->run(&run);
        run.packed = (const char *)run.packed + s->run_bytes;
    }
}

/* The query problems of this sweep that attend to its key problems [begin, end). */
static void query_problems(const ith_sweep *s, int64_t begin, int64_t end, int64_t *first, int64_t *count)
{
    int64_t low = (s->shape.first_keys + begin) * s->queries_per_key - s->shape.first_problem;
    int64_t high = (s->shape.first_keys + end) * s->queries_per_key - s->shape.first_problem;
    *first = ith_max64(low, 0);
    *count = ith_min64(high, s->shape.problems) - *first;
}

/* The part of one thread of a team. */
static void sweep_in_thread(ith_sweep *s, const ith_shard *shard, char *thread)
{
    int64_t runs = runs_of(s, shard->keys);
    for (int64_t begin = 0; begin < s->shape.keys_count; begin += s->together) {
        int64_t end = ith_min64(begin + s->together, s->shape.keys_count), first, count;
        query_problems(s, begin, end, &first, &count);
#pragma omp for schedule(static)
        for (int64_t task = 0; task < (end - begin) * runs; task++)
            pack_run(s, shard, begin + task / runs, task / runs, task % runs);
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < count * s->q_blocks; task++) {
            int64_t problem = first + task / s->q_blocks;
            int64_t keys = (s->shape.first_problem + problem) / s->queries_per_key - s->shape.first_keys;
            run_block(s, shard, problem, task % s->q_blocks, keys - begin, thread);
        }
    }
}

void ith_sweep_run(ith_sweep *sweep, const ith_shard *shard)
{
#pragma omp parallel num_threads(sweep->setting->threads)
    sweep_in_thread(sweep, shard, sweep->threads + omp_get_thread_num() * sweep->thread_bytes);
}
