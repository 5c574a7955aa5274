/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep on a device: the queries of some heads attend to a shard of keys and values, as run/cpu/sweep.h does it on
 * the processor. All work is enqueued to one stream; the host waits only for the statistics of fixed_m and for the end.
 *
 * Keys and values are read where they lie. Only if some keys may be absent (kv_lengths, key_bias) are they packed
 * first, with zeros for absent keys. Partial results of a ring (o_sum, m, l) stay on the device from one hop to the
 * next. */
#ifndef ITH_ATTENTION_DEVICE_SWEEP_H
#define ITH_ATTENTION_DEVICE_SWEEP_H

#include "../../fixed_m.h"
#include "../cpu/sweep.h"
#include "carrier.h"

/* The small arrays of a sweep, which exist twice: in pinned memory of the host, and on the device. */
typedef struct ith_device_small {
    int32_t *keys;    /* [ring, batch]: number of keys of each shard before the end that kv_lengths sets */
    float *key_bias;  /* [batch, kv_len] */
    float *own_means; /* [kv_heads, head_dim]; this array and the next two belong to ith_device_key_stats,
                       * ith_device_query_stats */
    float *stats;     /* [kv_heads, ITH_DEVICE_KEY_STATS] */
    float *squares;   /* [heads] */
    float *means;     /* [kv_heads, head_dim]: the mean keys of all shards */
    double *bounds;   /* [kv_heads] */
    uint8_t *fixed;   /* [heads]: 1 if the head uses fixed_m */
    int32_t *halt;    /* 1 on the host; on the device 1 if the execution is to stop */
} ith_device_small;

/* The state of a sweep of one rank: its streams, and its memory on the device and in pinned memory of the host. */
typedef struct ith_device_sweep {
    const ith_attn_setting *setting;
    ith_carrier *carrier;
    struct ith_device_stream *compute, *control; /* control: for the number `halt` alone */
    ith_sweep_shape shape;
    int64_t padded_rows; /* of a packed shard */
    ith_fixed_m fixed;
    ith_device_small on_device, pinned;
    void *packed_k, *packed_v; /* [kv_heads, padded_rows, head_dim]; NULL if nothing is packed */
    double *scratch;
    float *o_sum, *m, *l; /* [heads, q_rows, head_dim], [heads, q_rows]: the state between hops; m: offsets too */
    char *mask_piece;     /* pinned: a piece of the mask, for ith_device_sweep_read */
} ith_device_sweep;

/* The bytes that ith_device_sweep_read brings at a time. */
#define ITH_DEVICE_PIECE_BYTES ((int64_t)1 << 20)

/* Takes the memory of a sweep and fills in *out. shape: as in ith_sweep_lay_out. */
void ith_device_sweep_lay_out(const ith_attn_setting *setting, const ith_sweep_shape *shape, ith_plan_memory *memory,
                              ith_device_sweep *out);
/* Makes the streams of the sweep. `carrier` waits for them. */
ith_status ith_device_sweep_open(ith_device_sweep *sweep, ith_carrier *carrier);
void ith_device_sweep_close(ith_device_sweep *sweep);

/* Begins an execution. Its work follows the work that the caller's stream has now. */
ith_status ith_device_sweep_begin(ith_device_sweep *sweep, const ith_attn_tensors *tensors);
/* Prepares fixed_m for the jobs that follow, as ith_sweep_prepare does. */
ith_status ith_device_sweep_prepare(ith_device_sweep *sweep, const ith_step *step, const ith_queries *queries,
                                    const ith_shard *own);
/* Enqueues the attention of a COMPUTE step. */
ith_status ith_device_sweep_run(ith_device_sweep *sweep, const ith_step *step, const ith_queries *queries,
                                const ith_shard *shard, const ith_attn_tensors *tensors);
/* Waits until all work of the execution has ended. */
ith_status ith_device_sweep_end(ith_device_sweep *sweep);
/* Tells the device to skip the work that has not begun. user: an ith_device_sweep. */
void ith_device_sweep_halt(void *user);
/* Brings at most ITH_DEVICE_PIECE_BYTES bytes of the mask to the host, and sets *out to them. stream: the caller's. */
ith_status ith_device_sweep_read(ith_device_sweep *sweep, void *stream, const char *mask, int64_t bytes,
                                 const char **out);

#endif
