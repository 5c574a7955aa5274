/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrices as oneDNN primitives. */
#include "onednn_product.h"

#include "../../base/size.h"
#include "onednn_api.h"
#include "onednn_limit.h"

#include <omp.h>
#include <pthread.h>
#include <string.h>

/* One for all. NULL if there is none for this processor, or none within ITHACA_CPU. */
static dnnl_engine_t engine;

static void make_engine(void)
{
    if (!onednn_keep_limit() || dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
}

static dnnl_status_t describe(const onednn_shape *shape, dnnl_primitive_desc_t *out)
{
    layout src = {0}, weights = {0}, dst = {0};
    dnnl_primitive_attr_t attributes = NULL;
    const dnnl_dims_t src_size = {shape->rows, shape->in}, weight_size = {shape->in, shape->out};
    const dnnl_dims_t dst_size = {shape->rows, shape->out};
    dnnl_status_t status = attributes_make(shape->adds, &attributes);
    if (!status)
        status = layout_tagged(&src, 2, src_size, dnnl_bf16, dnnl_ab);
    if (!status)
        status =
            layout_tagged(&weights, 2, weight_size, dnnl_bf16, shape->width == 64 ? dnnl_BA16a64b2a : dnnl_BA16a32b2a);
    if (!status)
        status = layout_tagged(&dst, 2, dst_size, dnnl_f32, dnnl_ab);
    if (!status)
        status = matmul_descriptor(out, engine, &src, &weights, NULL, &dst, attributes);
    layout_free(&src);
    layout_free(&weights);
    layout_free(&dst);
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    return status;
}

/* oneDNN computes any product; those that it generates code for ("brg...") are the fast ones. */
static bool is_fast(const_dnnl_primitive_desc_t descriptor)
{
    const char *name = "";
    return dnnl_primitive_desc_query(descriptor, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
           strncmp(name, "brg", 3) == 0;
}

static layout_view layout_of(const onednn_product *product, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(product->descriptor, what, 0);
}

bool onednn_product_make(const onednn_shape *shape, onednn_product *out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *out = (onednn_product){0};
    if (pthread_once(&once, make_engine) != 0 || engine == NULL)
        return false;
    /* A primitive is made for the team that its maker would have: here for one thread. */
    int team = omp_get_max_threads();
    omp_set_num_threads(1);
    bool made = describe(shape, &out->descriptor) == dnnl_success && is_fast(out->descriptor) &&
                dnnl_primitive_create(&out->primitive, out->descriptor) == dnnl_success;
    omp_set_num_threads(team);
    if (!made) {
        onednn_product_free(out);
        return false;
    }
    layout_view scratch = layout_of(out, dnnl_query_scratchpad_md);
    out->scratch_bytes = scratch ? ith_round_up((int64_t)dnnl_memory_desc_get_size(scratch), 64) : 0;
    return true;
}

void onednn_product_free(onednn_product *product)
{
    if (product->primitive)
        dnnl_primitive_destroy(product->primitive);
    if (product->descriptor)
        dnnl_primitive_desc_destroy(product->descriptor);
    *product = (onednn_product){0};
}

bool onednn_lane_open(const onednn_product *product, void *scratch, onednn_lane *lane)
{
    *lane = (onednn_lane){.product = product};
    return dnnl_stream_create(&lane->stream, engine, dnnl_stream_default_flags) == dnnl_success &&
           dnnl_memory_create(&lane->src, layout_of(product, dnnl_query_src_md), engine, NULL) == dnnl_success &&
           dnnl_memory_create(&lane->weights, layout_of(product, dnnl_query_weights_md), engine, NULL) ==
               dnnl_success &&
           dnnl_memory_create(&lane->dst, layout_of(product, dnnl_query_dst_md), engine, NULL) == dnnl_success &&
           dnnl_memory_create(&lane->scratch, layout_of(product, dnnl_query_scratchpad_md), engine, scratch) ==
               dnnl_success;
}

void onednn_lane_close(onednn_lane *lane)
{
    struct dnnl_memory *memories[] = {lane->src, lane->weights, lane->dst, lane->scratch};
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
        if (memories[i])
            dnnl_memory_destroy(memories[i]);
    if (lane->stream)
        dnnl_stream_destroy(lane->stream);
    *lane = (onednn_lane){0};
}

bool onednn_lane_run(const onednn_lane *lane, const void *src, const void *weights, float *dst)
{
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, lane->src},
                                         {DNNL_ARG_WEIGHTS, lane->weights},
                                         {DNNL_ARG_DST, lane->dst},
                                         {DNNL_ARG_SCRATCHPAD, lane->scratch}};
    return dnnl_memory_set_data_handle(lane->src, (void *)src) == dnnl_success &&
           dnnl_memory_set_data_handle(lane->weights, (void *)weights) == dnnl_success &&
           dnnl_memory_set_data_handle(lane->dst, dst) == dnnl_success &&
           dnnl_primitive_execute(lane->product->primitive, lane->stream, (int)(sizeof arguments / sizeof *arguments),
                                  arguments) == dnnl_success;
}
