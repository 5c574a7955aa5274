/* SPDX-License-Identifier: Apache-2.0 */
/* Packs keys and values, and computes the attention of queries to them, on all threads of a rank (sweep.h). */
#include "sweep.h"

#include "../../../base/parallel.h"
#include "../../../base/size.h"
#include "../../../base/trace.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* each thread has about this many blocks of queries after each packing of keys, so that threads end nearly together */
#define TASKS_PER_THREAD 8
#define LAST_PARTS 4 /* number of parts of each of the last blocks */
/* the most elements of K packed by one call: short calls notice a cancellation soon */
#define PIECE_ELEMENTS ((int64_t)1 << 20)

/* The memory that one thread needs for a block of queries. */
typedef struct block_memory {
    void *scratch;
    /* partial results; unused if the sweep keeps them itself (ith_sweep_shape.keeps_state) */
    float *o_sum, *m, *l;
    const void **q, **mask; /* [block_q]: pointers to rows of q and of the mask */
    void **o;               /* [block_q]: pointers to rows of o */
    float *offsets, *lse;   /* [block_q]: offsets of fixed_m, and lse */
} block_memory;

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static int64_t kv_blocks_of(const ith_sweep *s, int64_t rows)
{
    return ith_div_up(rows, s->setting->tiles.block_kv);
}

/* Bytes of `rows` packed keys and their values, in KV blocks of block_kv keys; the last KV block may be shorter. */
static int64_t packed_shard_bytes(const ith_sweep *s, int64_t rows)
{
    const ith_attn_kernel *kernel = s->setting->kernel;
    int64_t whole = rows / s->setting->tiles.block_kv, rest = rows % s->setting->tiles.block_kv;
    return whole * s->block_bytes +
           ith_round_up(kernel->packed_bytes(rest, s->setting->problem.head_dim), ITH_ARENA_ALIGNMENT);
}

int64_t ith_sweep_heads_together(const ith_attn_problem *p, int64_t kv_heads, int64_t q_rows, int64_t block_q,
                                 int64_t threads)
{
    int64_t tasks = ith_max64(p->heads / p->kv_heads * ith_div_up(q_rows, block_q), 1);
    int64_t wanted = threads > 1 ? ith_div_up(threads * TASKS_PER_THREAD, tasks) : 1;
    return ith_max64(ith_min64(wanted, kv_heads), 1);
}

ith_sweep_tasks ith_sweep_tasks_of(int64_t blocks, int64_t threads)
{
    const int64_t cut = threads > 1 ? ith_min64(blocks, threads) : 0;
    return (ith_sweep_tasks){.whole = blocks - cut, .parts = LAST_PARTS, .count = blocks - cut + cut * LAST_PARTS};
}

void ith_sweep_task(const ith_sweep_tasks *tasks, int64_t task, int64_t *block, int64_t *part)
{
    const int64_t beyond = task - tasks->whole;
    *block = beyond < 0 ? task : tasks->whole + beyond / tasks->parts;
    *part = beyond < 0 ? -1 : beyond % tasks->parts;
}

int64_t ith_sweep_part_rows(int64_t block_q, int64_t step)
{
    return ith_round_up(ith_div_up(block_q, LAST_PARTS), step);
}

/* The number of kv heads packed at a time: all of them if other ranks use them too. */
static int64_t packed_together(const ith_sweep *s)
{
    if (s->shape.packs_for_all)
        return s->shape.kv_heads;
    return ith_sweep_heads_together(&s->setting->problem, s->shape.kv_heads, s->shape.q_rows, s->setting->tiles.block_q,
                                    s->setting->threads);
}

/* Divides the memory of a thread into its parts and returns their size. If memory is NULL, only computes the size. */
static int64_t split_thread_memory(const ith_sweep *s, char *memory, block_memory *out)
{
    ith_arena arena = {.base = memory};
    int64_t rows = s->setting->tiles.block_q, own = s->shape.keeps_state ? 0 : rows;
    out->scratch = ith_arena_take(&arena, s->scratch_bytes, 1);
    out->o_sum = ith_arena_take(&arena, own * s->setting->problem.head_dim, sizeof(float));
    out->m = ith_arena_take(&arena, own, sizeof(float));
    out->l = ith_arena_take(&arena, own, sizeof(float));
    out->q = ith_arena_take(&arena, rows, sizeof(void *));
    out->mask = ith_arena_take(&arena, rows, sizeof(void *));
    out->o = ith_arena_take(&arena, rows, sizeof(void *));
    out->offsets = ith_arena_take(&arena, rows, sizeof(float));
    out->lse = ith_arena_take(&arena, rows, sizeof(float));
    return arena.used_bytes;
}

/* The memory of a thread, for one task at a time: a block of queries, or a piece of keys that is packed. */
static char *thread_memory(const ith_sweep *s, int thread)
{
    return s->threads + thread * s->thread_bytes;
}

void ith_sweep_lay_out(const ith_attn_setting *setting, const ith_sweep_shape *shape, ith_arena *arena, ith_sweep *out)
{
    const ith_attn_kernel *kernel = setting->kernel;
    int64_t D = setting->problem.head_dim, panel = setting->tiles.block_kv_compute_in, bytes = 0;
    block_memory unused;
    *out = (ith_sweep){.setting = setting, .shape = *shape};
    out->piece_keys = ith_round_up(ith_min64(ith_max64(PIECE_ELEMENTS / D, 1), ITH_ATTN_PIECE_KEYS), panel);
    int64_t block_bytes = kernel->packed_bytes(ith_min64(setting->tiles.block_kv, shape->shard_rows), D);
    arena->overflow |= block_bytes < 0 || !ith_size_mul(kv_blocks_of(out, shape->shard_rows), block_bytes, &bytes);
    if (arena->overflow)
        return;
    out->block_bytes = ith_round_up(block_bytes, ITH_ARENA_ALIGNMENT);
    out->shard_bytes = packed_shard_bytes(out, shape->shard_rows);
    out->part_rows = ith_sweep_part_rows(setting->tiles.block_q, kernel->tiles(D).step.block_q);
    out->together = packed_together(out);
    out->scratch_bytes = kernel->scratch_bytes(D, &setting->tiles);
    out->thread_bytes =
        ith_max64(split_thread_memory(out, NULL, &unused), 2 * out->piece_keys * (int64_t)sizeof(void *));
    out->packed = ith_arena_take(arena, out->together, out->shard_bytes);
    out->threads = ith_arena_take(arena, setting->threads, out->thread_bytes);
    if (setting->softmax == ITH_SOFTMAX_FIXED_M) {
        ith_fixed_m_shape fixed = {shape->heads, shape->kv_heads, shape->q_rows, shape->shard_rows};
        ith_fixed_m_lay_out(setting, &fixed, arena, &out->fixed);
    }
    if (shape->keeps_state) {
        out->o_sum = ith_arena_take(arena, shape->heads * shape->q_rows, D * (int64_t)sizeof(float));
        out->m = ith_arena_take(arena, shape->heads * shape->q_rows, sizeof(float));
        out->l = ith_arena_take(arena, shape->heads * shape->q_rows, sizeof(float));
    }
}

ith_status ith_sweep_prepare(ith_sweep *sweep, const ith_heads *heads, const ith_queries *queries, const ith_shard *own,
                             const ith_attn_tensors *tensors)
{
    double traced = ith_trace_begin(sweep->setting->context);
    ith_status status = ith_fixed_m_prepare(&sweep->fixed, heads, queries, own, tensors);
    ith_trace_end(sweep->setting->context, traced, "offsets", "compute");
    return status;
}

/* Returns the start of a time interval for the trace (ith_trace_begin), or -1: only the first thread of a rank is
 * traced. */
static double trace_begin(const ith_sweep *s, int thread)
{
    return thread == 0 ? ith_trace_begin(s->setting->context) : -1;
}

static void trace_end(const ith_sweep *s, double begin, const char *name)
{
    ith_trace_end(s->setting->context, begin, name, "compute");
}

/* Whether the execution is to stop; the remaining work is then skipped. */
static bool halted(const ith_sweep *s)
{
    return ith_halted(s->setting->halt);
}

/* ---- Packing --------------------------------------------------------------------------------------------------- */

/* The offset in bytes of a KV block in the memory for packed keys and values. slot: the index of its kv head among the
 * kv heads that are packed together. */
static int64_t block_offset(const ith_sweep *s, int64_t slot, int64_t kv_block)
{
    return slot * s->shard_bytes + kv_block * s->block_bytes;
}

/* The number of keys in a KV block, without the keys beyond the length that kv_lengths sets. */
static int64_t keys_of_block(const ith_sweep *s, const ith_sweep_job *job, int64_t kv_head, int shard, int64_t kv_block)
{
    int64_t block = s->setting->tiles.block_kv;
    int64_t keys = ith_shard_keys(s->setting, &job->shards[shard], job->tensors, kv_head) - kv_block * block;
    return ith_max64(ith_min64(keys, block), 0);
}

/* Packs a part of a KV block: piece_keys keys from key piece * piece_keys on, or as many as the block still has. rows:
 * memory of this thread for pointers to the rows of its keys and values. */
static void pack_piece(const ith_sweep *s, const ith_sweep_job *job, int64_t slot, int64_t kv_head, int64_t kv_block,
                       int64_t piece, const void **rows)
{
    const void **k = rows, **v = rows + s->piece_keys;
    int64_t first = piece * s->piece_keys, keys = keys_of_block(s, job, kv_head, 0, kv_block) - first;
    if (keys <= 0)
        return;
    ith_attn_pack pack = {.dtype = s->setting->problem.dtype,
                          .head_dim = s->setting->problem.head_dim,
                          .first = first,
                          .keys = ith_min64(keys, s->piece_keys),
                          .k = k,
                          .v = v,
                          .packed = s->packed + block_offset(s, slot, kv_block)};
    pack.key_bias = ith_key_rows(s->setting, job->shards, job->tensors, kv_head,
                                 kv_block * s->setting->tiles.block_kv + first, pack.keys, k, v);
    s->setting->kernel->pack(&pack);
    ith_key_count(s->setting, job->shards, kv_block * s->setting->tiles.block_kv + first, pack.keys);
}

/* The kv heads of a job (ith_sweep_job) that are packed together, and the query heads that attend to them. */
typedef struct head_range {
    const ith_sweep *sweep;
    const ith_sweep_job *job;
    int64_t begin, end;       /* kv heads [begin, end), counted from the first kv head of the job */
    int64_t first, heads;     /* query heads [first, first + heads) */
    atomic_int_fast64_t next; /* the next task (ith_sweep_tasks) for a thread to take */
} head_range;

/* Packs one thread's share of the keys and values of the kv heads that are packed together. */
static void pack_in_thread(void *user, int thread)
{
    const head_range *r = user;
    const ith_sweep *s = r->sweep;
    const ith_sweep_job *job = r->job;
    double traced = trace_begin(s, thread);
    int64_t block = ith_min64(s->setting->tiles.block_kv, s->shape.shard_rows);
    int64_t pieces = ith_div_up(block, s->piece_keys);
    const void **rows = (const void **)thread_memory(s, thread);
    int64_t tasks = kv_blocks_of(s, job->shards->rows) * pieces, first, count;
    ith_share((r->end - r->begin) * tasks, s->setting->threads, thread, &first, &count);
    for (int64_t task = first; task < first + count; task++) {
        int64_t slot = task / tasks, kv_block = task % tasks / pieces;
        if (halted(s))
            break;
        pack_piece(s, job, slot, job->heads.kv_first + r->begin + slot, kv_block, task % pieces, rows);
    }
    trace_end(s, traced, "pack");
}

void ith_sweep_pack(ith_sweep *sweep, const ith_sweep_job *job)
{
    head_range all = {.sweep = sweep, .job = job, .end = job->heads.kv_heads};
    ith_parallel(sweep->setting->context, sweep->setting->threads, pack_in_thread, &all);
}

/* ---- Running --------------------------------------------------------------------------------------------------- */

/* Writes to out, for each of `rows` queries from query `number` on, the address of its mask entry for key `key`. n: the
 * query head. */
static void mask_rows(const ith_attn_setting *s, const ith_attn_tensors *tensors, int64_t n, int64_t number,
                      int64_t key, int64_t rows, const void **out)
{
    const ith_attn_problem *p = &s->problem;
    int64_t entry = p->mask_batch > 1 ? n / p->heads : 0, head = p->mask_heads > 1 ? n % p->heads : 0;
    int64_t element = ((entry * p->mask_heads + head) * p->q_len + number) * p->kv_len + key;
    int64_t bytes = p->mask == ITH_MASK_BOOL ? 1 : sizeof(float);
    for (int64_t i = 0; i < rows; i++)
        out[i] = (const char *)tensors->mask + (element + i * p->kv_len) * bytes;
}

/* A block of queries of one head or a part of it, and the kernel call that attends to its keys. */
typedef struct query_block {
    ith_attn_call call;
    int64_t head, kv_head, slot; /* slot: number of the kv head among the packed heads */
    int64_t begin, rows;         /* queries [begin, begin + rows) of this rank */
    int64_t number;              /* number of the first query in the whole sequence */
} query_block;

/* Fills in the kernel call of a block of queries: everything except the keys and values. */
static void describe_block(const ith_sweep *s, const ith_sweep_job *job, block_memory *memory, query_block *b)
{
    const ith_attn_setting *set = s->setting;
    int64_t kept = (b->head - job->heads.first) * s->shape.q_rows + b->begin;
    b->number = ith_query_rows(set, job->queries, b->head, b->begin, b->rows, memory->q, memory->o);
    b->call = (ith_attn_call){.dtype = set->problem.dtype,
                              .q_rows = b->rows,
                              .head_dim = set->problem.head_dim,
                              .tiles = set->tiles,
                              .q = memory->q,
                              .scale = set->problem.scale,
                              .softmax = ITH_SOFTMAX_ONLINE,
                              .mask_kind = set->problem.mask,
                              .mask = memory->mask,
                              .o_sum = s->o_sum ? s->o_sum + kept * set->problem.head_dim : memory->o_sum,
                              .m = s->m ? s->m + kept : memory->m,
                              .l = s->l ? s->l + kept : memory->l,
                              .o = memory->o,
                              .lse = memory->lse,
                              .scratch = memory->scratch,
                              .halted = s->setting->halt ? ith_halt_heard : NULL,
                              .halt = s->setting->halt};
    if (set->softmax == ITH_SOFTMAX_FIXED_M && ith_fixed_m_applies(&s->fixed, b->head)) {
        b->call.softmax = ITH_SOFTMAX_FIXED_M;
        b->call.m = memory->offsets;
        ith_fixed_m_offsets(&s->fixed, b->head, memory->q, b->rows, memory->offsets);
    }
}

/* Computes the attention of a block of queries to one KV block. */
static void attend_kv_block(const ith_sweep *s, const ith_sweep_job *job, int shard, int64_t kv_block, query_block *b,
                            block_memory *memory)
{
    const char *packed = job->shards[shard].packed;
    b->call.keys = keys_of_block(s, job, b->kv_head, shard, kv_block);
    b->call.packed = (packed ? packed : s->packed) + block_offset(s, b->slot, kv_block);
    if (b->call.mask_kind != ITH_MASK_NONE)
        mask_rows(s->setting, job->tensors, b->head, b->number,
                  job->shards[shard].begin + kv_block * s->setting->tiles.block_kv, b->call.q_rows, memory->mask);
    s->setting->kernel->attend(&b->call);
    b->call.first = false;
}

/* Whether a query has a key to attend to: a key before the end that kv_lengths sets, which neither key_bias nor the
 * mask hides. n: the query head. number: the number of the query in the whole sequence. */
static bool has_key(const ith_attn_setting *s, const ith_attn_tensors *tensors, int64_t n, int64_t number)
{
    const ith_attn_problem *p = &s->problem;
    const int64_t entry = n / p->heads, keys = p->has_kv_lengths ? tensors->kv_lengths[entry] : p->kv_len;
    const float *bias = p->has_key_bias ? tensors->key_bias + entry * p->kv_len : NULL;
    const void *mask = NULL;
    if (p->mask != ITH_MASK_NONE)
        mask_rows(s, tensors, n, number, 0, 1, &mask);
    for (int64_t j = 0; j < keys; j++) {
        bool hidden = bias && bias[j] == -INFINITY;
        hidden |= p->mask == ITH_MASK_BOOL && ((const uint8_t *)mask)[j] == 0;
        hidden |= p->mask == ITH_MASK_ADDITIVE && ((const float *)mask)[j] == -INFINITY;
        if (!hidden)
            return true;
    }
    return false;
}

/* Writes o = 0 and lse = -inf of queries that have no key to attend to. Kernels may give NaN there if the query has NaN
 * or infinity, because absent keys are packed as zeros. To be called after the kernel call for the last shard: the keys
 * of every shard count. */
static void clear_rows_without_keys(const ith_sweep *s, const ith_attn_tensors *tensors, query_block *b)
{
    const size_t bytes = (size_t)(s->setting->problem.head_dim * s->setting->element_bytes);
    for (int64_t i = 0; i < b->rows; i++) {
        if (!isnan(b->call.lse[i]) || halted(s) || has_key(s->setting, tensors, b->head, b->number + i))
            continue;
        memset(b->call.o[i], 0, bytes);
        b->call.lse[i] = -INFINITY;
    }
}

/* Computes the attention of a block of queries to all shards of a job (ith_sweep_job), one KV block after another. The
 * kernel call for the last KV block writes the output. A shard without keys takes one call without keys: so the calls,
 * and with them the bits, are the same if the shards come in one job or in several. */
static void attend_block(const ith_sweep *s, const ith_sweep_job *job, block_memory *memory, query_block *b)
{
    describe_block(s, job, memory, b);
    b->call.first = job->first;
    for (int shard = 0; shard < job->shard_count; shard++) {
        int64_t keys = ith_shard_keys(s->setting, &job->shards[shard], job->tensors, b->kv_head);
        int64_t kv_blocks = ith_max64(kv_blocks_of(s, keys), 1);
        for (int64_t kv_block = 0; kv_block < kv_blocks; kv_block++) {
            if (halted(s))
                return;
            b->call.last = job->last && shard == job->shard_count - 1 && kv_block == kv_blocks - 1;
            attend_kv_block(s, job, shard, kv_block, b, memory);
        }
    }
    if (!job->last)
        return;
    clear_rows_without_keys(s, job->tensors, b);
    ith_query_lse(job->queries, b->head, b->begin, b->rows, b->call.lse);
    ith_query_count(s->setting, job->queries, b->begin, b->rows, job->sent);
}

/* Sets *first and *count to the range of query heads in `heads` that attend to its kv heads [begin, end). */
static void query_heads(const ith_sweep *s, const ith_heads *heads, int64_t begin, int64_t end, int64_t *first,
                        int64_t *count)
{
    int64_t per_key = s->setting->problem.heads / s->setting->problem.kv_heads;
    *first = ith_max64((heads->kv_first + begin) * per_key, heads->first);
    *count = ith_min64((heads->kv_first + end) * per_key, heads->first + heads->count) - *first;
}

/* Describes the queries of a task. `blocks`: number of blocks of queries of a head. rows is at most 0 if the task has
 * no queries. */
static query_block block_of(const head_range *r, const ith_sweep_tasks *tasks, int64_t blocks, int64_t task)
{
    const ith_sweep *s = r->sweep;
    const int64_t block_q = s->setting->tiles.block_q;
    int64_t block, part;
    ith_sweep_task(tasks, task, &block, &part);
    query_block b = {.head = r->first + block / blocks, .begin = block % blocks * block_q};
    b.kv_head = b.head / (s->setting->problem.heads / s->setting->problem.kv_heads);
    b.slot = b.kv_head - r->job->heads.kv_first - r->begin;
    b.rows = ith_min64(block_q, r->job->queries->rows - b.begin);
    if (part >= 0) {
        b.begin += part * s->part_rows;
        b.rows = ith_min64(s->part_rows, b.rows - part * s->part_rows);
    }
    return b;
}

/* The work of one thread: takes one task of a head_range after another, until none is left. */
static void attend_in_thread(void *user, int thread)
{
    head_range *r = user;
    const ith_sweep *s = r->sweep;
    const ith_sweep_job *job = r->job;
    block_memory memory;
    split_thread_memory(s, thread_memory(s, thread), &memory);
    const int64_t blocks = ith_div_up(job->queries->rows, s->setting->tiles.block_q);
    const ith_sweep_tasks tasks = ith_sweep_tasks_of(r->heads * blocks, s->setting->threads);
    int64_t task;
    double traced = trace_begin(s, thread);
    while (!halted(s) && (task = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed)) < tasks.count) {
        query_block b = block_of(r, &tasks, blocks, task);
        if (b.rows > 0)
            attend_block(s, job, &memory, &b);
        if (thread == 0 && job->progress)
            job->progress(job->progress_user);
    }
    trace_end(s, traced, "attend");
}

/* Counts the bytes of shards that other ranks have packed and this rank reads, once for each kv head. */
static void count_packed(const ith_sweep *s, const ith_sweep_job *job)
{
    const ith_attn_problem *p = &s->setting->problem;
    for (int i = 0; i < job->shard_count; i++) {
        const ith_shard *shard = &job->shards[i];
        int64_t rows = 0;
        if (!shard->sent)
            continue;
        for (int64_t n = 0; n < job->heads.kv_heads; n++)
            rows += ith_shard_keys(s->setting, shard, job->tensors, job->heads.kv_first + n);
        atomic_fetch_add(shard->sent, 2 * rows * p->head_dim * s->setting->element_bytes);
    }
}

void ith_sweep_run(ith_sweep *sweep, const ith_sweep_job *job)
{
    const ith_attn_setting *s = sweep->setting;
    count_packed(sweep, job);
    for (int64_t begin = 0; begin < job->heads.kv_heads; begin += sweep->together) {
        head_range r = {.sweep = sweep, .job = job, .begin = begin};
        r.end = ith_min64(begin + sweep->together, job->heads.kv_heads);
        query_heads(sweep, &job->heads, begin, r.end, &r.first, &r.heads);
        if (!job->shards->packed)
            ith_parallel(s->context, s->threads, pack_in_thread, &r);
        ith_parallel(s->context, s->threads, attend_in_thread, &r);
    }
}
