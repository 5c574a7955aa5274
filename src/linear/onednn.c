/* SPDX-License-Identifier: Apache-2.0 */
/* Products and convolutions as primitives of oneDNN, for its versions 2 and 3.
 *
 * A primitive is made in three steps: layouts (memory descriptors) of its arguments, a primitive descriptor, in which
 * oneDNN chooses an implementation and the layout of the packed weights, and the primitive itself, which is code for
 * these sizes. https://oneapi-src.github.io/oneDNN/dev_guide_basic_concepts.html */
#include "onednn.h"

#include "../base/size.h"
#include "onednn_api.h"
#include "onednn_limit.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>

#define SCRATCH_ALIGNMENT 64

/* oneDNN's engine, which stands for the processor. One engine serves the whole process, and is never destroyed. */
static dnnl_engine_t engine;

/* The shapes, types and strides of the arguments of a primitive. */
typedef struct layouts {
    layout src, weights, bias, dst;
} layouts;

/* Makes a layout that leaves the order of the elements to the primitive. */
static dnnl_status_t layout_any(layout *out, int dims, const dnnl_dims_t size, dnnl_data_type_t type)
{
    return layout_tagged(out, dims, size, type, dnnl_format_tag_any);
}

static dnnl_status_t conv_descriptor(dnnl_primitive_desc_t *out, const layouts *l, const dnnl_dims_t padding,
                                     dnnl_primitive_attr_t attributes)
{
#if DNNL_VERSION_MAJOR >= 3
    const dnnl_dims_t strides = {1, 1, 1}, dilates = {0, 0, 0};
    return dnnl_convolution_forward_primitive_desc_create(out, engine, dnnl_forward_inference, dnnl_convolution_direct,
                                                          l->src, l->weights, l->bias, l->dst, strides, dilates,
                                                          padding, padding, attributes);
#else
    const dnnl_dims_t strides = {1, 1, 1};
    dnnl_convolution_desc_t description;
    dnnl_status_t status =
        dnnl_convolution_forward_desc_init(&description, dnnl_forward_inference, dnnl_convolution_direct, &l->src,
                                           &l->weights, &l->bias, &l->dst, strides, padding, padding);
    return status ? status : dnnl_primitive_desc_create(out, &description, attributes, engine, NULL);
#endif
}

/* ---- The primitive --------------------------------------------------------------------------------------------- */

/* A primitive for fixed shapes, with the descriptor from which it was made. */
struct ith_onednn_op {
    dnnl_primitive_desc_t descriptor;
    dnnl_primitive_t primitive;
    layout plain_weights; /* layout of the weights that are passed to ith_onednn_pack */
};

static layout_view op_layout(const ith_onednn_op *op, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(op->descriptor, what, 0);
}

static int64_t layout_bytes(layout_view view)
{
    return view ? ith_round_up((int64_t)dnnl_memory_desc_get_size(view), SCRATCH_ALIGNMENT) : 0;
}

static bool limit_is_kept; /* true if oneDNN uses only instruction sets that ITHACA_CPU allows */

/* Limits the instruction sets of oneDNN and creates its engine, once for the process. */
static void start(void)
{
    limit_is_kept = onednn_keep_limit();
    if (limit_is_kept && dnnl_engine_create(&engine, dnnl_cpu, 0))
        engine = NULL;
}

/* Must be called before any function of oneDNN. Returns whether oneDNN is limited to the instruction sets of
 * ITHACA_CPU. */
static bool limited(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    return !pthread_once(&once, start) && limit_is_kept;
}

static ith_status op_new(ith_context *context, ith_onednn_op **out)
{
    *out = NULL;
    if (!limited())
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "oneDNN cannot be kept within ITHACA_CPU: this process used it before Ithaca did");
    if (!engine)
        return ith_fail(context, ITH_ERR_INTERNAL, "oneDNN has no engine for this processor");
    *out = ith_alloc_zero(context, 1, sizeof **out, "a oneDNN primitive");
    return *out ? ITH_OK : ITH_ERR_MEMORY;
}

int64_t ith_onednn_op_bytes(void)
{
    return (int64_t)sizeof(ith_onednn_op) + ITH_ALLOC_HEADER;
}

/* ---- Objects of oneDNN, counted -------------------------------------------------------------------------------- */

static atomic_int_fast64_t objects_made;

int64_t ith_onednn_objects_made(void)
{
    return atomic_load(&objects_made);
}

static dnnl_status_t make_memory(dnnl_memory_t *out, layout_view view, void *data)
{
    atomic_fetch_add(&objects_made, 1);
    return dnnl_memory_create(out, view, engine, data);
}

static dnnl_status_t make_stream(dnnl_stream_t *out)
{
    atomic_fetch_add(&objects_made, 1);
    return dnnl_stream_create(out, engine, dnnl_stream_default_flags);
}

/* Makes a primitive, and counts two objects: the primitive and its descriptor. */
static dnnl_status_t make_primitive(dnnl_primitive_t *out, dnnl_primitive_desc_t descriptor)
{
    atomic_fetch_add(&objects_made, 2);
    return dnnl_primitive_create(out, descriptor);
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
    ith_free(context, *op);
    *op = NULL;
}

static dnnl_data_type_t operand_type(ith_dtype type)
{
    return type == ITH_BF16 ? dnnl_bf16 : dnnl_f32;
}

static void layouts_free(layouts *l)
{
    layout_free(&l->src);
    layout_free(&l->weights);
    layout_free(&l->bias);
    layout_free(&l->dst);
}

/* Makes the layouts of a matrix product. The plain weight is w [out, in]; the product takes w^T [in, out], which is the
 * same memory with other strides. */
static dnnl_status_t matmul_layouts(const ith_onednn_matmul *shape, layout *plain, layouts *l)
{
    dnnl_data_type_t type = operand_type(shape->type);
    const dnnl_dims_t weight_size = {shape->in, shape->out}, plain_strides = {1, shape->in};
    dnnl_status_t status = layout_strided(plain, 2, weight_size, type, plain_strides);
    if (!status)
        status = layout_any(&l->weights, 2, weight_size, type);
    if (!status)
        status = layout_strided(&l->src, 2, (dnnl_dims_t){shape->rows, shape->in}, type, (dnnl_dims_t){shape->in, 1});
    if (!status)
        status = layout_strided(&l->bias, 2, (dnnl_dims_t){1, shape->out}, dnnl_f32, (dnnl_dims_t){shape->out, 1});
    if (!status)
        status =
            layout_strided(&l->dst, 2, (dnnl_dims_t){shape->rows, shape->out}, dnnl_f32, (dnnl_dims_t){shape->out, 1});
    return status;
}

static dnnl_status_t matmul_describe(ith_onednn_op *op, const ith_onednn_matmul *shape)
{
    layouts l = {0};
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_status_t status = attributes_make(false, &attributes);
    if (!status)
        status = matmul_layouts(shape, &op->plain_weights, &l);
    if (!status)
        status = matmul_descriptor(&op->descriptor, engine, &l.src, &l.weights, &l.bias, &l.dst, attributes);
    layouts_free(&l);
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    return status;
}

/* Makes the layout of frames, [1, channels, frames, height, width] in oneDNN's order, with the channels innermost in
 * memory. */
static dnnl_status_t frames_layout(layout *out, int64_t channels, int64_t frames, int64_t height, int64_t width,
                                   dnnl_data_type_t type)
{
    int64_t row = width * channels, frame = height * row;
    const dnnl_dims_t size = {1, channels, frames, height, width};
    const dnnl_dims_t strides = {frames * frame, 1, frame, row, channels};
    return layout_strided(out, 5, size, type, strides);
}

/* Makes the layouts of a convolution in three dimensions. The frames of src are its depth; its output has depth 1. */
static dnnl_status_t conv_layouts(const ith_onednn_conv *shape, layout *plain, layouts *l)
{
    dnnl_data_type_t type = operand_type(shape->type);
    int64_t kernel = shape->kernel, taps = shape->frames * kernel * kernel;
    const dnnl_dims_t weight_size = {shape->out, shape->in, shape->frames, kernel, kernel};
    const dnnl_dims_t plain_strides = {shape->in * taps, taps, kernel * kernel, kernel, 1};
    dnnl_status_t status = layout_strided(plain, 5, weight_size, type, plain_strides);
    if (!status)
        status = layout_any(&l->weights, 5, weight_size, type);
    if (!status)
        status = frames_layout(&l->src, shape->in, shape->frames,
                               shape->height + (shape->has_border ? kernel / 2 * 2 : 0), shape->width, type);
    if (!status)
        status = layout_strided(&l->bias, 1, (dnnl_dims_t){shape->out}, dnnl_f32, (dnnl_dims_t){1});
    if (!status)
        status = frames_layout(&l->dst, shape->out, 1, shape->height, shape->width, dnnl_f32);
    return status;
}

static dnnl_status_t conv_describe(ith_onednn_op *op, const ith_onednn_conv *shape)
{
    layouts l = {0};
    dnnl_primitive_attr_t attributes = NULL;
    const dnnl_dims_t padding = {0, shape->has_border ? 0 : shape->kernel / 2, shape->kernel / 2};
    dnnl_status_t status = attributes_make(shape->adds, &attributes);
    if (!status)
        status = conv_layouts(shape, &op->plain_weights, &l);
    if (!status)
        status = conv_descriptor(&op->descriptor, &l, padding, attributes);
    layouts_free(&l);
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    return status;
}

/* Reports that oneDNN did not make a primitive. `what` names the primitive: "matrix product" or "convolution". */
static ith_status refuse(ith_context *context, dnnl_status_t status, ith_dtype type, const char *what, int64_t in,
                         int64_t out)
{
    const char *name = ith_dtype_name(type);
    if (status == dnnl_unimplemented)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "oneDNN has no %s %s for this processor", name, what);
    return ith_fail(context, status == dnnl_out_of_memory ? ITH_ERR_MEMORY : ITH_ERR_INTERNAL,
                    "oneDNN made no %s %s of %lld to %lld channels (its status %d)", name, what, (long long)in,
                    (long long)out, (int)status);
}

/* Makes the primitive of an ith_onednn_op from its descriptor. `status` says whether oneDNN could make the
 * descriptor. */
static ith_status op_finish(ith_context *context, dnnl_status_t status, ith_dtype type, const char *what, int64_t in,
                            int64_t out, ith_onednn_op **op)
{
    if (!status)
        status = make_primitive(&(*op)->primitive, (*op)->descriptor);
    if (!status)
        return ITH_OK;
    ith_onednn_op_destroy(context, op);
    return refuse(context, status, type, what, in, out);
}

ith_status ith_onednn_matmul_create(ith_context *context, const ith_onednn_matmul *shape, ith_onednn_op **op)
{
    ith_status status = op_new(context, op);
    if (status)
        return status;
    /* oneDNN makes a primitive for as many threads as the calling thread's team would have; here that must be one. */
    int team = omp_get_max_threads();
    omp_set_num_threads(1);
    status = op_finish(context, matmul_describe(*op, shape), shape->type, "matrix product", shape->in, shape->out, op);
    omp_set_num_threads(team);
    return status;
}

ith_status ith_onednn_conv_create(ith_context *context, const ith_onednn_conv *shape, ith_onednn_op **op)
{
    ith_status status = op_new(context, op);
    return status
               ? status
               : op_finish(context, conv_describe(*op, shape), shape->type, "convolution", shape->in, shape->out, op);
}

int64_t ith_onednn_weight_bytes(const ith_onednn_op *op)
{
    return layout_bytes(op_layout(op, dnnl_query_weights_md));
}

int64_t ith_onednn_scratch_bytes(const ith_onednn_op *op)
{
    return layout_bytes(op_layout(op, dnnl_query_scratchpad_md));
}

/* ---- bf16 ------------------------------------------------------------------------------------------------------ */

bool ith_onednn_multiplies_bf16(const ith_context *context)
{
    if (!limited())
        return false;
    /* oneDNN's number for an instruction set contains the bits of all instruction sets that it extends. */
    const unsigned dots = (unsigned)dnnl_cpu_isa_avx512_core_bf16, tiles = (unsigned)dnnl_cpu_isa_avx512_core_amx;
    unsigned has = (unsigned)dnnl_get_effective_cpu_isa();
    uint32_t used = ITH_CPU_AVX512_BF16 | ((has & tiles) == tiles ? ITH_CPU_AMX_BF16 : 0);
    return (has & dots) == dots && (ith_context_cpu(context) & used) == used;
}

/* ---- Weights --------------------------------------------------------------------------------------------------- */

/* Copies weights from their plain layout to the packed layout in which the primitive of `op` reads them. */
static dnnl_status_t reorder(const ith_onednn_op *op, struct dnnl_memory *from, struct dnnl_memory *to)
{
    dnnl_primitive_desc_t descriptor = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_stream_t stream = NULL;
    dnnl_status_t status = dnnl_reorder_primitive_desc_create(&descriptor, layout_borrow(&op->plain_weights), engine,
                                                              op_layout(op, dnnl_query_weights_md), engine, NULL);
    if (!status)
        status = make_primitive(&primitive, descriptor);
    if (!status)
        status = make_stream(&stream);
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

ith_status ith_onednn_weights_at(const ith_onednn_op *op, void *packed, struct dnnl_memory **weights)
{
    *weights = NULL;
    return make_memory(weights, op_layout(op, dnnl_query_weights_md), packed) ? ITH_ERR_INTERNAL : ITH_OK;
}

ith_status ith_onednn_pack(const ith_onednn_op *op, const void *plain, void *packed, struct dnnl_memory **weights)
{
    dnnl_memory_t from = NULL;
    *weights = NULL;
    dnnl_status_t status = make_memory(&from, layout_borrow(&op->plain_weights), (void *)plain);
    if (!status)
        status = make_memory(weights, op_layout(op, dnnl_query_weights_md), packed);
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

/* ---- Execution ------------------------------------------------------------------------------------------------- */

ith_status ith_onednn_lane_open(const ith_onednn_op *op, ith_onednn_lane *lane)
{
    lane->op = op;
    dnnl_status_t status = make_stream(&lane->stream);
    if (!status)
        status = make_memory(&lane->src, op_layout(op, dnnl_query_src_md), DNNL_MEMORY_NONE);
    if (!status) /* oneDNN counts the bias as weight number 1 */
        status = make_memory(&lane->bias, dnnl_primitive_desc_query_md(op->descriptor, dnnl_query_weights_md, 1),
                             DNNL_MEMORY_NONE);
    if (!status)
        status = make_memory(&lane->dst, op_layout(op, dnnl_query_dst_md), DNNL_MEMORY_NONE);
    if (!status)
        status = make_memory(&lane->scratch, op_layout(op, dnnl_query_scratchpad_md), DNNL_MEMORY_NONE);
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

ith_status ith_onednn_execute(ith_onednn_lane *lane, const void *src, struct dnnl_memory *weights, const float *bias,
                              float *dst, void *scratch)
{
    dnnl_status_t status = dnnl_memory_set_data_handle(lane->src, (void *)src);
    if (!status)
        status = dnnl_memory_set_data_handle(lane->bias, (void *)bias);
    if (!status)
        status = dnnl_memory_set_data_handle(lane->dst, dst);
    if (!status)
        status = dnnl_memory_set_data_handle(lane->scratch, scratch);
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
