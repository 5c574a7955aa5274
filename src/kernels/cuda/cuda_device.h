/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the CUDA module share: its objects, the check of CUDA's errors, and the launchers that
 * the module's table (cuda_module.c) lists. Each launcher is defined in a .cu file as extern "C". kernels/device.h has
 * the contracts. */
#ifndef ITH_KERNELS_CUDA_DEVICE_H
#define ITH_KERNELS_CUDA_DEVICE_H

#include "../device.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open device. */
struct ith_device {
    int index, capability, processors;
};

/* A stream of a device. */
struct ith_device_stream {
    struct ith_device *device;
    cudaStream_t stream;
    cudaEvent_t event;         /* marks a point of the stream for wait_for */
    cudaEvent_t foreign_event; /* marks a point of a foreign stream for wait_for_foreign */
};

/* ITH_OK for cudaSuccess. Otherwise a failure whose sentence begins with `doing`, such as "starting an attention
 * kernel": ITH_ERR_MEMORY if there is no memory left, ITH_ERR_UNSUPPORTED without a fitting driver or device,
 * ITH_ERR_INTERNAL for all else, such as a lost device. The failure is then no longer CUDA's last error. */
ith_status ith_cuda_check(cudaError_t error, const char *doing, char *said);
/* The same for the last kernel that was started. */
ith_status ith_cuda_check_launch(const char *doing, char *said);

ith_status ith_cuda_copy_regions(struct ith_device_stream *stream, const ith_region_pair *copies, int64_t count,
                                 char *said);
ith_status ith_cuda_pack(struct ith_device_stream *stream, const ith_device_pack *pack, char *said);
int64_t ith_cuda_key_stats_scratch_bytes(int64_t count, int64_t kv_rows, int64_t head_dim);
ith_status ith_cuda_key_stats(struct ith_device_stream *stream, const ith_device_key_stats *stats, char *said);
ith_status ith_cuda_query_stats(struct ith_device_stream *stream, const ith_device_query_stats *stats, char *said);
ith_status ith_cuda_offsets(struct ith_device_stream *stream, const ith_device_offsets *offsets, char *said);

/* The scratch memory of linear layers (cuda_linear.c). */
#define ITH_CUDA_PRODUCT_BYTES ((int64_t)64 << 20)
ith_status ith_cuda_create_products(struct ith_device *device, struct ith_device_products **out, char *said);
void ith_cuda_destroy_products(struct ith_device_products *products);
ith_status ith_cuda_linear(struct ith_device_stream *stream, struct ith_device_products *products,
                           const ith_device_linear *linear, char *said);
/* Replaces v by act(v + bias) in rows of y, for linear layers whose library cannot. */
ith_status ith_cuda_bias_act(struct ith_device_stream *stream, const ith_device_linear *linear, char *said);
ith_status ith_cuda_update_rows(struct ith_device_stream *stream, const ith_device_row_update *update, char *said);
ith_status ith_cuda_norm_heads(struct ith_device_stream *stream, const ith_device_heads *heads, char *said);

const char *ith_cuda_conv_refusal(void);
ith_status ith_cuda_create_convs(struct ith_device *device, struct ith_device_convs **out, char *said);
void ith_cuda_destroy_convs(struct ith_device_convs *convs);
ith_status ith_cuda_prepare_conv(struct ith_device_convs *convs, const ith_device_conv *conv, int64_t *bytes,
                                 char *said);
ith_status ith_cuda_convolve(struct ith_device_stream *stream, struct ith_device_convs *convs,
                             const ith_device_conv *conv, void *scratch, int64_t scratch_bytes, char *said);
ith_status ith_cuda_pixels(struct ith_device_stream *stream, const ith_device_pixels *pixels, char *said);
ith_status ith_cuda_colours(struct ith_device_stream *stream, const ith_device_colours *colours, char *said);
ith_status ith_cuda_softmax(struct ith_device_stream *stream, const ith_device_softmax *softmax, char *said);

extern const ith_device_kernel ith_cuda_attn_16bit_sm90; /* attn_16bit_sm90.cu: wgmma and TMA */
extern const ith_device_kernel ith_cuda_attn_16bit_sm80; /* attn_16bit_sm80.cu: mma.sync */
extern const ith_device_kernel ith_cuda_attn_f32_sm80;   /* attn_f32_sm80.cu: f32 multiply-adds, any size, any type */

#ifdef __cplusplus
}
#endif
#endif
