/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of device modules. A device is a GPU. The module ithaca_device_NAME.so (base/modules.h) exports an
 * ith_device_module called ith_device_module_table: functions for memory and streams, and the operations of attention.
 * The library itself links nothing of a GPU.
 *
 * Every function that can fail returns a status and, on failure, writes one sentence to `said`. The other functions
 * cannot fail. Functions that take a stream only enqueue work and return at once; work of one stream runs in order.
 * Sizes of tensors are in elements, unless the name says bytes. "On the device" means memory of
 * ith_device_module.allocate, or any memory of the caller that the device can address. */
#ifndef ITH_KERNELS_DEVICE_H
#define ITH_KERNELS_DEVICE_H

#include "../base/modules.h"
#include "device_conv.h"
#include "device_layers.h"

#include <ithaca/transport.h>

/* The version of the interface between the library and its device modules. It goes up with every change to this file.
 */
#define ITH_DEVICE_MODULE_ABI 1
/* Bytes of a sentence of a failure, with its terminating zero. */
#define ITH_DEVICE_SENTENCE 256

struct ith_device;        /* an open device; its members belong to the module */
struct ith_device_stream; /* a stream of a device; its members belong to the module */

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

/* Rows of some heads in the memory of a device. Heads are numbered over the batch (attention/setting.h). In elements,
 * row s of head n begins at
 *     data + (n - first) / heads * batch_stride + s * row_stride + (n - first) % heads * head_dim. */
typedef struct ith_device_rows {
    void *data;
    int64_t first, heads, row_stride, batch_stride;
} ith_device_rows;

/* Two regions of the same number of bytes. */
typedef struct ith_region_pair {
    ith_region target, source;
} ith_region_pair;

/* ---- Attention ------------------------------------------------------------------------------------------------- */

/* One call of an attention kernel: query heads [first, first + count), all q_rows queries of each, against one shard of
 * keys and values. The equations, the state (o_sum, m, l) and the rules for results are in kernel.h, with these
 * differences: a call has many heads; a row's result may not depend on the other rows, heads or the grid. */
typedef struct ith_device_attend {
    ith_dtype dtype; /* number type of q, k, v and o */
    int64_t head_dim;
    float scale;
    /* ONLINE or FIXED_M: this call computes the heads that use this softmax, and leaves other heads untouched. `fixed`
     * says which heads use fixed_m: [count] bytes on the device, 1 or 0; NULL: all heads use `softmax`. */
    ith_softmax softmax;
    const uint8_t *fixed;
    int64_t first, count;
    int64_t heads;  /* query heads of one batch entry: head n belongs to batch entry n / heads */
    int64_t per_kv; /* query head n attends to kv head n / per_kv */
    ith_device_rows q, k, v, o;
    int64_t q_rows, kv_rows;
    /* The numbers of keys of each batch entry in this shard, [batch] on the device, each from 0 to kv_rows; NULL: all
     * kv_rows. Rows of k and v behind them, up to the next multiple of ITH_DEVICE_KEYS, exist and are finite numbers.
     */
    const int32_t *keys;
    /* [batch] rows, key_bias_stride apart, on the device: element 0 belongs to the first key of this shard. Added to
     * the scaled logits, in units of the natural logarithm. -INFINITY hides a key, whose rows of k and v are then
     * finite numbers. NULL: none. */
    const float *key_bias;
    int64_t key_bias_stride;
    /* The entry of the mask for query i of head n and key j of this shard lies at element
     *     n / heads * mask_batch_stride + n % heads * mask_head_stride + i * mask_row_stride + j
     * of `mask`, which is on the device: uint8_t (BOOL, 0 hides the key) or float (ADDITIVE, -INFINITY hides). */
    ith_mask mask_kind;
    const void *mask;
    int64_t mask_batch_stride, mask_head_stride, mask_row_stride;
    /* first_shard: the state is not read (but m is, with fixed_m). last_shard: o and lse are written, and the state is
     * not. All on the device. The state may be NULL if both are true, except for m with fixed_m. */
    bool first_shard, last_shard;
    float *o_sum; /* [count, q_rows, head_dim] */
    float *m, *l; /* [count, q_rows] each; offsets m in base 2 */
    float *lse;   /* [count] rows of q_rows numbers, lse_stride apart, natural logarithms; NULL: not wanted */
    int64_t lse_stride;
    /* A number on the device. A block of threads that begins while it is not 0 does nothing: the call was cancelled,
     * and its results are not used. */
    const int32_t *halt;
} ith_device_attend;

/* Rows of k and v that a kernel may read behind the last key of a batch entry reach to the next multiple of this. */
enum { ITH_DEVICE_KEYS = 256 };

/* A kernel of attention on a device. */
typedef struct ith_device_kernel {
    const char *name;
    /* Why the kernel cannot compute such a call on this device: a static sentence that names the rule; NULL: it can.
     * Looks at the members up to mask_kind, but not at pointers except whether they are NULL; rows without data count
     * as suitably aligned. */
    const char *(*refuses)(const struct ith_device *device, const ith_device_attend *call);
    ith_status (*attend)(struct ith_device_stream *stream, const ith_device_attend *call, char *said);
} ith_device_kernel;

/* ---- Preparation of keys and of fixed_m ------------------------------------------------------------------------ */

/* Copies the rows of kv heads [first, first + count) to contiguous rows: to [count, padded_rows, head_dim], of the same
 * type. Rows of absent keys (behind `keys`, or with a key_bias of -INFINITY) and rows from kv_rows to padded_rows
 * become zeros. keys and key_bias: as in ith_device_attend. */
typedef struct ith_device_pack {
    ith_dtype dtype;
    int64_t head_dim, first, count, kv_heads, kv_rows, padded_rows;
    ith_device_rows from;
    const int32_t *keys;
    const float *key_bias;
    int64_t key_bias_stride;
    void *to;
} ith_device_pack;

/* The statistics of the keys of a head, in their order: the number of keys; the largest |k_j - mean|^2; the largest
 * |v_jd|; 1 if some key_bias is neither 0 nor -INFINITY, otherwise 0. */
enum {
    ITH_DEVICE_KEY_COUNT,
    ITH_DEVICE_KEY_SQUARE,
    ITH_DEVICE_KEY_MAGNITUDE,
    ITH_DEVICE_KEY_OTHER_BIAS,
    ITH_DEVICE_KEY_STATS
};

/* Statistics of one shard of keys for fixed_m (attention/fixed_m.h). Absent keys are skipped. NaN or infinity in a row
 * gives NaN or infinity in its statistics. */
typedef struct ith_device_key_stats {
    ith_dtype dtype;
    int64_t head_dim, first, count, kv_heads, kv_rows;
    ith_device_rows k, v;
    const int32_t *keys;
    const float *key_bias;
    int64_t key_bias_stride;
    bool smoothed;
    /* [count, head_dim] on the device: the mean key of the shard; zeros if smoothed is false or there are no keys.
     * Groups of 64 rows are summed in f32, and their sums in f64. */
    float *means;
    /* [count, ITH_DEVICE_KEY_STATS] on the device. The number of keys is exact up to 2^24. Squares have the error that
     * keyops.h promises. */
    float *stats;
    double *scratch; /* key_stats_scratch_bytes on the device */
} ith_device_key_stats;

/* The largest |q_i|^2 of each query head: squares [count] on the device. NaN if a row has one. */
typedef struct ith_device_query_stats {
    ith_dtype dtype;
    int64_t head_dim, first, count, q_rows;
    ith_device_rows q;
    float *squares;
} ith_device_query_stats;

/* The offsets of fixed_m: for each query i of head n, with g = n / per_kv - kv_first,
 *     m_i = (float)(c q_i . means[g] + ceil(|c| (norm_factor |q_i| bounds[g] + head_dim 2^-125) + margin) - 88),
 * in f64 except for the products q_i . means[g] and |q_i|^2, which have the error that keyops.h promises. Heads whose
 * `fixed` is 0 are left out. All arrays are on the device. */
typedef struct ith_device_offsets {
    ith_dtype dtype;
    int64_t head_dim, first, count, per_kv, kv_first, q_rows;
    ith_device_rows q;
    double c, norm_factor, margin;
    const float *means;   /* [kv heads, head_dim]; NULL: zeros */
    const double *bounds; /* [kv heads] */
    const uint8_t *fixed; /* [count] */
    float *m;             /* [count, q_rows] */
} ith_device_offsets;

/* ---- The table ------------------------------------------------------------------------------------------------- */

/* The properties of a device. */
typedef struct ith_device_facts {
    char name[64];  /* the maker's name of the device */
    int capability; /* of a CUDA device: 10 * major + minor, such as 90 */
    int processors; /* streaming multiprocessors */
    int64_t memory_bytes, free_bytes;
} ith_device_facts;

typedef struct ith_device_module {
    ith_module_head head;

    /* Opens device number `index`. Every open device is closed once. Fails with ITH_ERR_UNSUPPORTED if there is no such
     * device, no driver, a driver that is too old, or a device that is too old; ITH_ERR_MEMORY; ITH_ERR_INTERNAL. */
    ith_status (*open)(int index, struct ith_device **out, char *said);
    void (*close)(struct ith_device *device);
    ith_status (*facts)(struct ith_device *device, ith_device_facts *facts, char *said);

    /* Memory of the device, and memory of the host that the device copies fast (pinned). release accepts NULL. */
    ith_status (*allocate)(struct ith_device *device, int64_t bytes, void **out, char *said);
    void (*release)(struct ith_device *device, void *pointer);
    ith_status (*allocate_pinned)(struct ith_device *device, int64_t bytes, void **out, char *said);
    void (*release_pinned)(struct ith_device *device, void *pointer);
    /* Whether the device can read and write this address. Any thread may call this. */
    bool (*addresses)(struct ith_device *device, const void *pointer);

    /* Streams. destroy_stream accepts NULL. foreign: the caller's own stream (a cudaStream_t) as a stream for
     * `wait_for`; it is not destroyed. */
    ith_status (*create_stream)(struct ith_device *device, struct ith_device_stream **out, char *said);
    void (*destroy_stream)(struct ith_device_stream *stream);
    /* The work that is enqueued to `stream` from now on begins after the work that `other` has now. */
    ith_status (*wait_for)(struct ith_device_stream *stream, struct ith_device_stream *other, char *said);
    ith_status (*wait_for_foreign)(struct ith_device_stream *stream, void *foreign, char *said);
    /* *done: all work of the stream has ended. Returns the failure of work that has failed, also of earlier work. */
    ith_status (*query)(struct ith_device_stream *stream, bool *done, char *said);

    /* Contiguous copies between any memories, in order of the stream. Host memory that is not pinned may make the call
     * wait. `fill` sets bytes. */
    ith_status (*copy)(struct ith_device_stream *stream, void *target, const void *source, int64_t bytes, char *said);
    ith_status (*fill)(struct ith_device_stream *stream, void *target, int byte, int64_t bytes, char *said);

    /* Copies strided regions of device memory (or pinned host memory); source and target have the same bytes, and no
     * target overlaps another region of the list. The list may be freed after the call. */
    ith_status (*copy_regions)(struct ith_device_stream *stream, const ith_region_pair *copies, int64_t count,
                               char *said);
    ith_status (*pack)(struct ith_device_stream *stream, const ith_device_pack *pack, char *said);
    int64_t (*key_stats_scratch_bytes)(int64_t count, int64_t kv_rows, int64_t head_dim);
    ith_status (*key_stats)(struct ith_device_stream *stream, const ith_device_key_stats *stats, char *said);
    ith_status (*query_stats)(struct ith_device_stream *stream, const ith_device_query_stats *stats, char *said);
    ith_status (*offsets)(struct ith_device_stream *stream, const ith_device_offsets *offsets, char *said);

    /* The kernels of attention, ending with NULL. The kernel that is usually the fastest comes first. */
    const ith_device_kernel *const *kernels;

    /* The stream as the device's own library knows it (a cudaStream_t), for transports. */
    void *(*raw_stream)(struct ith_device_stream *stream);

    /* The operations of a transformer's layers (device_layers.h); NULL: the module has none. */
    const ith_device_layers *layers;

    /* The operations of convolutional layers (device_conv.h); NULL: the module has none. */
    const ith_device_convolutions *convolutions;
} ith_device_module;

#endif
