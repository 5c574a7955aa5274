/* SPDX-License-Identifier: Apache-2.0 */
/* A fake device: the module ithaca_device_fake.so computes the operations of kernels/device.h in plain C on the
 * processor, for tests of the library on machines without a GPU. It also checks its callers:
 *   - Memory of the device has addresses that fault on the processor; only this module reaches it, through a second
 *     mapping. An access outside of allocated blocks is a failure of the operation, as on a GPU.
 *   - New and released memory of the device is filled with NaN.
 *   - Rows that a kernel may read must exist, and hidden rows must be finite.
 * "fake:0" runs operations when they are enqueued. "fake:1" runs an operation of a stream only when the stream is
 * queried, or when another stream that waits for it is: a wait_for that is missing gives wrong results. "fake:2" runs
 * the operations of each stream on a thread of its own. If a stream of "fake:3" is queried, the operations of all other
 * streams run first, so work that should have waited comes too early. */
#ifndef ITH_TESTS_FAKE_DEVICE_H
#define ITH_TESTS_FAKE_DEVICE_H

#include "kernels/device.h"

#include <stdatomic.h>

/* The table by which a test controls and observes the device. The module exports it as fake_control, for dlsym. */
typedef struct fake_control_table {
    atomic_long calls;        /* number of calls that can fail at once, which are all but queries */
    atomic_long refuse;       /* the number of the call that fails, from 0; -1: none. An allocation gets no memory */
    atomic_long runs;         /* operations that have run */
    atomic_long fail;         /* the number of the operation that fails when it runs; -1: none */
    atomic_llong device_held; /* bytes of device memory that are allocated */
    atomic_llong pinned_held; /* bytes of pinned memory */
    atomic_long streams;      /* streams that exist */
    atomic_long attended;     /* heads that attention kernels have computed */
    atomic_long delay_us;     /* additional microseconds of each call of 16bit_fake */
} fake_control_table;

/* ---- Between the files of the module --------------------------------------------------------------------------- */

/* The address at which this module reaches `bytes` of device memory or pinned memory. NULL if they are not inside one
 * allocated block, with a sentence in `said`. */
void *fake_at(struct ith_device *device, const void *pointer, int64_t bytes, char *said);

extern fake_control_table fake_control;

/* The operations. They run at once. */
ith_status fake_copy_regions(struct ith_device *device, const ith_region_pair *copies, int64_t count, char *said);
ith_status fake_pack(struct ith_device *device, const ith_device_pack *pack, char *said);
int64_t fake_key_stats_scratch_bytes(int64_t count, int64_t kv_rows, int64_t head_dim);
ith_status fake_key_stats(struct ith_device *device, const ith_device_key_stats *stats, char *said);
ith_status fake_query_stats(struct ith_device *device, const ith_device_query_stats *stats, char *said);
ith_status fake_offsets(struct ith_device *device, const ith_device_offsets *offsets, char *said);
ith_status fake_attend(struct ith_device *device, const ith_device_attend *call, char *said);
ith_status fake_linear(struct ith_device *device, const ith_device_linear *linear, char *said);
ith_status fake_update_rows(struct ith_device *device, const ith_device_row_update *update, char *said);
ith_status fake_norm_heads(struct ith_device *device, const ith_device_heads *heads, char *said);
ith_status fake_convolve(struct ith_device *device, const ith_device_conv *conv, void *scratch, int64_t scratch_bytes,
                         char *said);
ith_status fake_pixels(struct ith_device *device, const ith_device_pixels *pixels, char *said);
ith_status fake_colours(struct ith_device *device, const ith_device_colours *colours, char *said);
ith_status fake_softmax(struct ith_device *device, const ith_device_softmax *softmax, char *said);

enum { FAKE_TOGETHER = 8 };
/* Returns weights [out, in] as f64 [out / FAKE_TOGETHER, in, FAKE_TOGETHER], which the caller frees; weights of outputs
 * that do not exist are 0. NULL: there is no memory. */
double *fake_spread_weights(const void *w, ith_dtype type, int64_t out, int64_t in);
/* Adds to each sum the products of `count` numbers of x and the weights of its output. */
void fake_add_products(double sums[FAKE_TOGETHER], const void *x, ith_dtype type, int64_t count, const double *spread);

/* Functions of the table that enqueue nothing. */
const char *fake_conv_refusal(void);
ith_status fake_create_convs(struct ith_device *device, struct ith_device_convs **out, char *said);
void fake_destroy_convs(struct ith_device_convs *convs);
ith_status fake_prepare_conv(struct ith_device_convs *convs, const ith_device_conv *conv, int64_t *bytes, char *said);

#endif
