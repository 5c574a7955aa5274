/* SPDX-License-Identifier: Apache-2.0 */
/* The linear layers of a model: their sizes, their places in an arena, their packed weights.
 *
 * w^T is cut into panels of columns. A panel is packed in the order in which oneDNN's primitive reads it, and is
 * contiguous, so that it is read once into the second-level cache and used for many rows. */
#include "linear_set.h"

#include "../base/dtype.h"
#include "../base/size.h"

#include <omp.h>
#include <string.h>

#define COLUMN_UNIT 64 /* the number of columns that oneDNN packs together */
/* A panel of w^T has at most PANEL_COLUMNS columns and about PANEL_BYTES bytes of packed weights, which stay in a
 * second-level cache. */
#define PANEL_COLUMNS 1024
#define PANEL_BYTES (768 * 1024)
#define CACHE_LINE 64

/* ---- Sizes of layers ------------------------------------------------------------------------------------------- */

/* The number of columns of w^T in a panel: the `out` columns are divided about evenly among the fewest panels that fit
 * into the cache. */
static int64_t panel_columns(int64_t in, int64_t out, const ith_operand_types *types)
{
    int64_t widest = ith_min64(PANEL_BYTES / (in * ith_dtype_bytes(types->multiplied)), PANEL_COLUMNS);
    widest = ith_max64(widest / COLUMN_UNIT, 1) * COLUMN_UNIT;
    return ith_round_up(ith_div_up(out, ith_div_up(out, widest)), COLUMN_UNIT);
}

/* Creates the oneDNN primitive p->ops[which] for panels of `columns` columns of w^T. Every panel takes the same number
 * of bytes, which is enough for both primitives. */
static ith_status create_op(ith_context *context, ith_product *p, int which, int64_t columns)
{
    ith_onednn_matmul shape = {ITH_BAND_ROWS, p->in, columns, p->types.multiplied};
    ith_status status = ith_onednn_matmul_create(context, &shape, &p->ops[which]);
    if (status)
        return status;
    p->panel_bytes = ith_max64(p->panel_bytes, ith_onednn_weight_bytes(p->ops[which]));
    p->scratch_bytes = ith_max64(p->scratch_bytes, ith_onednn_scratch_bytes(p->ops[which]));
    p->stored_bytes = ith_product_widens(p) ? p->panel_bytes / 2 : p->panel_bytes;
    return ITH_OK;
}

/* Adds a size of layer to the set, with its oneDNN primitives. */
static ith_status add_product(ith_linear_set *set, int64_t in, int64_t out, const ith_operand_types *types)
{
    ith_context *context = set->context;
    if (in < 1 || out < 1 || in > INT32_MAX || out > INT32_MAX)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a linear layer of %lld to %lld; both must be from 1 to 2^31 - 1",
                        (long long)in, (long long)out);
    ith_status status = ith_operand_types_check(context, types, ITH_F32, "a linear layer");
    if (status)
        return status;
    ith_product *p = ith_alloc_zero(context, 1, sizeof *p, "a linear layer");
    if (!p)
        return ITH_ERR_MEMORY;
    p->next = set->products, p->index = set->count++;
    set->products = p;
    p->in = in, p->out = out, p->types = *types;
    p->columns = panel_columns(in, out, types);
    p->panels = ith_div_up(out, p->columns);
    int64_t rest = out % p->columns;
    status = create_op(context, p, 0, ith_min64(p->columns, out));
    return status || p->panels == 1 || !rest ? status : create_op(context, p, 1, rest);
}

static const ith_product *find_product(const ith_linear_set *set, int64_t in, int64_t out,
                                       const ith_operand_types *types)
{
    const ith_product *p = set->products;
    while (p && (p->in != in || p->out != out || memcmp(&p->types, types, sizeof *types) != 0))
        p = p->next;
    return p;
}

/* ---- The set --------------------------------------------------------------------------------------------------- */

ith_status ith_linear_set_create(ith_context *context, ith_linear_set **set)
{
    *set = ith_alloc_zero(context, 1, sizeof **set, "a model's linear layers");
    if (!*set)
        return ITH_ERR_MEMORY;
    (*set)->context = context;
    return ITH_OK;
}

void ith_linear_set_destroy(ith_linear_set **set)
{
    if (!set || !*set)
        return;
    ith_linear_set *s = *set;
    for (ith_linear *layer = s->layers; layer; layer = layer->next)
        for (int64_t i = 0; layer->weights && i < layer->product->panels; i++)
            ith_onednn_weights_free(&layer->weights[i]);
    while (s->products) {
        ith_product *p = s->products;
        s->products = p->next;
        ith_onednn_op_destroy(s->context, &p->ops[0]);
        ith_onednn_op_destroy(s->context, &p->ops[1]);
        ith_free(s->context, p);
    }
    ith_free(s->context, s);
    *set = NULL;
}

ith_status ith_linear_set_status(const ith_linear_set *set)
{
    return set->status;
}

int64_t ith_linear_set_bytes(const ith_linear_set *set)
{
    int64_t bytes = (int64_t)sizeof *set + ITH_ALLOC_HEADER;
    for (const ith_product *p = set->products; p; p = p->next)
        bytes += (int64_t)sizeof *p + ITH_ALLOC_HEADER + (p->ops[1] ? 2 : 1) * ith_onednn_op_bytes();
    return bytes;
}

ith_linear *ith_linear_lay_out(ith_linear_set *set, int64_t in, int64_t out, ith_operand_types types, ith_arena *arena)
{
    if (!set->status && !find_product(set, in, out, &types))
        set->status = add_product(set, in, out, &types);
    if (set->status)
        return NULL;
    const ith_product *p = find_product(set, in, out, &types);
    int64_t handles = ith_product_widens(p) ? 0 : p->panels;
    ith_linear *linear = ith_arena_take(arena, 1, sizeof *linear);
    struct dnnl_memory **weights = ith_arena_take(arena, handles, sizeof *weights);
    float *bias = ith_arena_take(arena, out, sizeof *bias);
    char *packed = ith_arena_take(arena, p->panels, p->stored_bytes);
    if (!linear)
        return NULL;
    *linear = (ith_linear){set->layers, p, packed, handles ? weights : NULL, bias};
    memset(weights, 0, (size_t)handles * sizeof *weights);
    set->layers = linear;
    return linear;
}

/* ---- Packing --------------------------------------------------------------------------------------------------- */

/* Returns columns [begin, begin + count) of w^T, which are rows of the weight. If they need no conversion, the result
 * points into `weight`; otherwise they are converted into `plain`. */
static const void *plain_panel(const ith_product *p, const void *weight, ith_dtype type, int64_t begin, int64_t count,
                               void *plain)
{
    const char *rows = (const char *)weight + begin * p->in * ith_dtype_bytes(type);
    if (type == p->types.stored && !ith_product_widens(p))
        return rows;
    ith_operand_weights(&p->types, plain, rows, type, count * p->in);
    return plain;
}

/* Packs one panel of weights. If panels are stored in bf16 and multiplied in f32, `wide` is memory for a panel in
 * f32. */
static ith_status pack_panel(const ith_linear *linear, int64_t panel, const void *rows, void *wide)
{
    const ith_product *p = linear->product;
    const ith_onednn_op *op = p->ops[ith_product_op(p, panel)];
    char *stored = linear->packed + panel * p->stored_bytes;
    if (!ith_product_widens(p))
        return ith_onednn_pack(op, rows, stored, &linear->weights[panel]);
    struct dnnl_memory *weights = NULL;
    memset(wide, 0, (size_t)p->panel_bytes);
    ith_status status = ith_onednn_pack(op, rows, wide, &weights);
    ith_onednn_weights_free(&weights);
    if (!status)
        ith_from_f32(stored, p->types.stored, wide, p->panel_bytes / (int64_t)sizeof(float));
    return status;
}

/* Bytes of a panel of weights before packing. A thread's scratch memory begins with this panel. */
static int64_t plain_bytes(const ith_product *p)
{
    return ith_round_up(p->columns * p->in * ith_dtype_bytes(p->types.multiplied), CACHE_LINE);
}

/* Bytes of a thread's scratch memory: a panel of weights before packing and, if weights are stored in bf16 and
 * multiplied in f32, a packed panel in f32. */
static int64_t packing_bytes(const ith_product *p)
{
    return plain_bytes(p) + (ith_product_widens(p) ? p->panel_bytes : 0);
}

int64_t ith_linear_packing_bytes(const ith_linear_set *set)
{
    int64_t most = 0;
    for (const ith_product *p = set->products; p; p = p->next)
        most = ith_max64(most, packing_bytes(p));
    return omp_get_max_threads() * most;
}

ith_status ith_linear_pack(ith_context *context, ith_linear *linear, const void *weight, ith_dtype weight_type,
                           const float *bias, void *scratch)
{
    const ith_operand_types f32 = ith_operands_f32();
    ith_status status = ith_operand_types_check(context, &f32, weight_type, "a linear layer");
    if (status || !linear)
        return status;
    const ith_product *p = linear->product;
    int failed = 0, stopped = 0;
    /* Each thread is the first to write to its panels, so the system spreads them over the memory of all NUMA nodes. */
#pragma omp parallel for schedule(static) reduction(| : failed, stopped)
    for (int64_t i = 0; i < p->panels; i++) {
        if (failed || stopped || ith_context_interrupted(context)) {
            stopped = 1;
            continue;
        }
        int64_t begin = i * p->columns, count = ith_min64(p->columns, p->out - begin);
        char *plain = (char *)scratch + omp_get_thread_num() * packing_bytes(p);
        const void *rows = plain_panel(p, weight, weight_type, begin, count, plain);
        failed |= pack_panel(linear, i, rows, plain + plain_bytes(p)) != ITH_OK;
    }
    if (failed)
        return ith_fail(context, ITH_ERR_INTERNAL, "oneDNN did not pack the weights of a %lld to %lld layer",
                        (long long)p->in, (long long)p->out);
    for (int64_t i = 0; i < p->out; i++)
        linear->bias[i] = bias ? bias[i] : 0;
    return stopped ? ith_fail_interrupted(context) : ITH_OK;
}
