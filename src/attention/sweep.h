/* A sweep: some head problems' queries over a shard of keys and values, on all of the rank's threads.
 *
 * The shard is cut into runs of the kernel's kv_block from its beginning. A few key problems at a time are packed, then
 * every block of their queries passes over all runs. What is summed up (o_sum, m, l) stays between the shards of a
 * ring; for a lone shard it lives only as long as a block of queries. */
#ifndef ITH_ATTENTION_SWEEP_H
#define ITH_ATTENTION_SWEEP_H

#include "setting.h"

typedef struct ith_sweep ith_sweep;

typedef struct ith_sweep_shape {
    int64_t first_problem, problems; /* of the list of query problems */
    int64_t first_keys, keys_count;  /* of the list of key problems: those that these queries attend to */
    int64_t q_rows, most_keys;       /* rows of every query problem; the longest shard */
    bool several_shards;
} ith_sweep_shape;

/* The key problems that query problems [first, first + count) attend to. */
void ith_key_problems(const ith_attn_problem *problem, int64_t first, int64_t count, int64_t *first_keys,
                      int64_t *keys_count);

ith_status ith_sweep_create(const ith_attn_setting *setting, const ith_sweep_shape *shape, ith_sweep **out);
void ith_sweep_destroy(ith_sweep **sweep);

/* One shard. Problems are numbered from those of the shape, so that problem 0 of q is first_problem. */
typedef struct ith_shard {
    ith_rows q, k, v, o;
    float *lse;            /* [problems, q_rows]; NULL: not wanted */
    const float *key_bias; /* of the shard's first key in batch entry 0; entries are kv_len apart. NULL: none */
    int64_t keys;
    bool first, last; /* of the shards that these queries meet; o and lse are written after the last */
} ith_shard;

void ith_sweep_run(ith_sweep *sweep, const ith_shard *shard);

#endif
