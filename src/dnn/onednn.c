/* oneDNN primitives behind one interface for its 2.x and 3.x versions.
 *
 * What differs: in 2.x a memory descriptor is a struct and a primitive descriptor is made from an operation descriptor;
 * in 3.x a memory descriptor is a handle and a primitive descriptor is made in one call.
 * https://oneapi-src.github.io/oneDNN/dev_guide_transition_to_v3.html */
#include "onednn.h"

#include "../base/size.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#define SCRATCH_ALIGNMENT 64

/* ---- Memory descriptors --------------------------------------------------------------------------------------------
 */

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t layout;            /* owned */
typedef const_dnnl_memory_desc_t layout_view; /* borrowed */

static dnnl_status_t layout_strided(layout *out, int dims, const dnnl_dims_t size, dnnl_data_type_t type,
                                    const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(out, dims, size, type, strides);
}

static dnnl_status_t layout_any(layout *out, int dims, const dnnl_dims_t size, dnnl_data_type_t type)
{
    return dnnl_memory_desc_create_with_tag(out, dims, size, type, dnnl_format_tag_any);
}

static layout_view layout_borrow(const layout *own)
{
    return *own;
}

static void layout_free(layout *own)
{
    if (*own)
        dnnl_memory_desc_destroy(*own);
    *own = NULL;
}

static dnnl_status_t matmul_descriptor(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const layout *src,
                                       const layout *weights, const layout *bias, const layout *dst,
                                       dnnl_primitive_attr_t attributes)
{
    return dnnl_matmul_primitive_desc_create(out, engine, *src, *weights, *bias, *dst, attributes);
}

#else

typedef dnnl_memory_desc_t layout;
typedef const dnnl_memory_desc_t *layout_view;

static dnnl_status_t layout_strided(layout *out, int dims, const dnnl_dims_t size, dnnl_data_type_t type,
                                    const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(out, dims, size, type, strides);
}

static dnnl_status_t layout_any(layout *out, int dims, const dnnl_dims_t size, dnnl_data_type_t type)
{
    return dnnl_memory_desc_init_by_tag(out, dims, size, type, dnnl_format_tag_any);
}

static layout_view layout_borrow(const layout *own)
{
    return own;
}

static void layout_free(layout *own)
{
    (void)own;
}

static dnnl_status_t matmul_descriptor(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const layout *src,
                                       const layout *weights, const layout *bias, const layout *dst,
                                       dnnl_primitive_attr_t attributes)
{
    dnnl_matmul_desc_t description;
    dnnl_status_t status = dnnl_matmul_desc_init(&description, src, weights, bias, dst);
    return status ? status : dnnl_primitive_desc_create(out, &description, attributes, engine, NULL);
}

#endif

/* ---- The primitive -------------------------------------------------------------------------------------------------
 */

struct ith_onednn_op {
    dnnl_engine_t engine;
    dnnl_primitive_desc_t descriptor;
    dnnl_primitive_t primitive;
    layout plain_weights; /* as ith_onednn_pack is given them */
    const char *name;
};

static layout_view op_layout(const ith_onednn_op *op, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(op->descriptor, what, 0);
}

static int64_t layout_bytes(layout_view view)
{
    return view ? ith_round_up((int64_t)dnnl_memory_desc_get_size(view), SCRATCH_ALIGNMENT) : 0;
}

static ith_status op_new(ith_context *context, ith_onednn_op **out)
{
    *out = ith_alloc_zero(context, 1, sizeof **out, "a oneDNN primitive");
    if (!*out)
        return ITH_ERR_MEMORY;
    if (!dnnl_engine_create(&(*out)->engine, dnnl_cpu, 0))
        return ITH_OK;
    ith_free(context, *out);
    *out = NULL;
    return ith_fail(context, ITH_ERR_INTERNAL, "oneDNN has no engine for this processor");
}

void ith_onednn_op_destroy(ith_context *context, ith_onednn_op **op)
{
    if (!op || !*op)
        return;
    if ((*op)->primitive)
        dnnl_primitive_destroy((*op)->primitive);
    if ((*op)->descriptor)
        dnnl_primitive_desc_destroy((*op)->descriptor);
    layout_free(&(*op)->plain_weights);
    dnnl_engine_destroy((*op)->engine);
    ith_free(context, *op);
    *op = NULL;
}

/* Scratch memory comes from the caller, so that threads can share a primitive. */
static dnnl_status_t attributes_make(dnnl_primitive_attr_t *out)
{
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    return status ? status : dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
}

static dnnl_status_t matmul_describe(ith_onednn_op *op, const ith_onednn_matmul *shape)
{
    dnnl_data_type_t type = shape->precision == ITH_PRECISION_BF16 ? dnnl_bf16 : dnnl_f32;
    dnnl_dims_t src_size = {shape->rows, shape->in}, weight_size = {shape->in, shape->out};
    dnnl_dims_t dst_size = {shape->rows, shape->out}, bias_size = {1, shape->out};
    dnnl_dims_t src_strides = {shape->in, 1}, dst_strides = {shape->out, 1};
    dnnl_dims_t plain_strides = {1, shape->in}, bias_strides = {shape->out, 1};
    layout src = {0}, weights = {0}, bias = {0}, dst = {0};
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_status_t status = attributes_make(&attributes);
    if (!status)
        status = layout_strided(&op->plain_weights, 2, weight_size, type, plain_strides);
    if (!status)
        status = layout_strided(&src, 2, src_size, type, src_strides);
    if (!status)
        status = layout_any(&weights, 2, weight_size, type);
    if (!status)
        status = layout_strided(&bias, 2, bias_size, dnnl_f32, bias_strides);
    if (!status)
        status = layout_strided(&dst, 2, dst_size, dnnl_f32, dst_strides);
    if (!status)
        status = matmul_descriptor(&op->descriptor, op->engine, &src, &weights, &bias, &dst, attributes);
    layout_free(&src);
    layout_free(&weights);
    layout_free(&bias);
    layout_free(&dst);
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    return status;
}

static dnnl_status_t op_finish(ith_onednn_op *op)
{
    dnnl_status_t status = dnnl_primitive_create(&op->primitive, op->descriptor);
    if (!status)
        status = dnnl_primitive_desc_query(op->descriptor, dnnl_query_impl_info_str, 0, &op->name);
    return status;
}

ith_status ith_onednn_matmul_create(ith_context *context, const ith_onednn_matmul *shape, ith_onednn_op **out)
{
    ith_status result = op_new(context, out);
    if (result)
        return result;
    /* A primitive is made for the team that its maker would have: here for one thread. */
    int team = omp_get_max_threads();
    omp_set_num_threads(1);
    dnnl_status_t status = matmul_describe(*out, shape);
    if (!status)
        status = op_finish(*out);
    omp_set_num_threads(team);
    if (!status)
        return ITH_OK;
    ith_onednn_op_destroy(context, out);
    const char *precision = shape->precision == ITH_PRECISION_BF16 ? "bf16" : "f32";
    if (status == dnnl_unimplemented)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "oneDNN has no %s matrix product for this processor; use f32",
                        precision);
    return ith_fail(context, status == dnnl_out_of_memory ? ITH_ERR_MEMORY : ITH_ERR_INTERNAL,
                    "oneDNN made no %s matrix product of %lld rows, %lld to %lld (its status %d)", precision,
                    (long long)shape->rows, (long long)shape->in, (long long)shape->out, (int)status);
}

int64_t ith_onednn_weight_bytes(const ith_onednn_op *op)
{
    return layout_bytes(op_layout(op, dnnl_query_weights_md));
}

int64_t ith_onednn_scratch_bytes(const ith_onednn_op *op)
{
    return layout_bytes(op_layout(op, dnnl_query_scratchpad_md));
}

const char *ith_onednn_name(const ith_onednn_op *op)
{
    return op->name;
}

/* ---- Weights -------------------------------------------------------------------------------------------------------
 */

static dnnl_status_t reorder(const ith_onednn_op *op, struct dnnl_memory *from, struct dnnl_memory *to)
{
    dnnl_primitive_desc_t descriptor = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_stream_t stream = NULL;
    dnnl_status_t status =
        dnnl_reorder_primitive_desc_create(&descriptor, layout_borrow(&op->plain_weights), op->engine,
                                           op_layout(op, dnnl_query_weights_md), op->engine, NULL);
    if (!status)
        status = dnnl_primitive_create(&primitive, descriptor);
    if (!status)
        status = dnnl_stream_create(&stream, op->engine, dnnl_stream_default_flags);
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    if (!status)
        status = dnnl_primitive_execute(primitive, stream, 2, arguments);
    if (!status)
        status = dnnl_stream_wait(stream);
    if (stream)
        dnnl_stream_destroy(stream);
    if (primitive)
        dnnl_primitive_destroy(primitive);
    if (descriptor)
        dnnl_primitive_desc_destroy(descriptor);
    return status;
}

ith_status ith_onednn_pack(const ith_onednn_op *op, const void *plain, void *packed, struct dnnl_memory **weights)
{
    *weights = NULL;
    dnnl_memory_t from = NULL;
    dnnl_status_t status = dnnl_memory_create(&from, layout_borrow(&op->plain_weights), op->engine, (void *)plain);
    if (!status)
        status = dnnl_memory_create(weights, op_layout(op, dnnl_query_weights_md), op->engine, packed);
    if (!status)
        status = reorder(op, from, *weights);
    if (from)
        dnnl_memory_destroy(from);
    if (status)
        ith_onednn_weights_free(weights);
    return status ? ITH_ERR_INTERNAL : ITH_OK;
}

void ith_onednn_weights_free(struct dnnl_memory **weights)
{
    if (*weights)
        dnnl_memory_destroy(*weights);
    *weights = NULL;
}

/* ---- Execution -----------------------------------------------------------------------------------------------------
 */

ith_status ith_onednn_lane_open(const ith_onednn_op *op, void *scratch, ith_onednn_lane *lane)
{
    lane->op = op;
    dnnl_status_t status = dnnl_stream_create(&lane->stream, op->engine, dnnl_stream_default_flags);
    if (!status)
        status = dnnl_memory_create(&lane->src, op_layout(op, dnnl_query_src_md), op->engine, DNNL_MEMORY_NONE);
    if (!status) /* the bias is the second of the weights */
        status = dnnl_memory_create(&lane->bias, dnnl_primitive_desc_query_md(op->descriptor, dnnl_query_weights_md, 1),
                                    op->engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&lane->dst, op_layout(op, dnnl_query_dst_md), op->engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&lane->scratch, op_layout(op, dnnl_query_scratchpad_md), op->engine, scratch);
    return status ? ITH_ERR_INTERNAL : ITH_OK;
}

void ith_onednn_lane_close(ith_onednn_lane *lane)
{
    struct dnnl_memory *memories[] = {lane->src, lane->bias, lane->dst, lane->scratch};
    for (int i = 0; i < 4; i++)
        if (memories[i])
            dnnl_memory_destroy(memories[i]);
    if (lane->stream)
        dnnl_stream_destroy(lane->stream);
    *lane = (ith_onednn_lane){0};
}

ith_status ith_onednn_run(ith_onednn_lane *lane, const void *src, struct dnnl_memory *weights, const float *bias,
                          float *dst)
{
    dnnl_status_t status = dnnl_memory_set_data_handle(lane->src, (void *)src);
    if (!status)
        status = dnnl_memory_set_data_handle(lane->bias, (void *)bias);
    if (!status)
        status = dnnl_memory_set_data_handle(lane->dst, dst);
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, lane->src},
                                   {DNNL_ARG_WEIGHTS, weights},
                                   {DNNL_ARG_BIAS, lane->bias},
                                   {DNNL_ARG_DST, lane->dst},
                                   {DNNL_ARG_SCRATCHPAD, lane->scratch}};
    if (!status)
        status = dnnl_primitive_execute(lane->op->primitive, lane->stream, 5, arguments);
    if (!status)
        status = dnnl_stream_wait(lane->stream);
    return status ? ITH_ERR_INTERNAL : ITH_OK;
}
