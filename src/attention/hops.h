/* The way of keys and values round a ring. At hop h rank r of R computes on the shard of rank r - h (mod R) while it
 * sends that shard on to rank r + 1 and receives the next from rank r - 1; the last hop sends nothing. The order in
 * which partial results are added is that of the hops: a function of the rank alone. */
#ifndef ITH_ATTENTION_HOPS_H
#define ITH_ATTENTION_HOPS_H

#include "sweep.h"

typedef struct ith_hops ith_hops;

/* keys_count key problems on every rank of the ring, `heads` of them side by side in a row. */
ith_status ith_hops_create(const ith_attn_setting *setting, int64_t keys_count, int64_t heads, ith_hops **out);
void ith_hops_destroy(ith_hops **hops);

/* Rows of the longest shard. */
int64_t ith_hops_most_keys(const ith_hops *hops);
/* Bytes that this rank sends in one execution. */
int64_t ith_hops_sent_bytes(const ith_hops *hops);

/* `own` describes the queries, the results and this rank's own shard; its key_bias is that of the whole sequence. */
ith_status ith_hops_run(ith_hops *hops, ith_sweep *sweep, const ith_shard *own);

#endif
