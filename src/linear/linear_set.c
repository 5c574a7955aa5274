/* SPDX-License-Identifier: Apache-2.0 */
/* The linear layers of a model: their sizes, their memory in an arena, their weights. */
#include "linear_set.h"

#include "../base/file_fault.h"
#include "../base/prefetch.h"
#include "../base/size.h"
#include "linear_left.h"

#include <string.h>

#define CACHE_LINE 64

/* ---- Sizes of layers ------------------------------------------------------------------------------------------- */

/* The least common multiple of the rows of a tile and the kernel's `step`. A unit with a multiple of this number of
 * features has whole tiles, and its hidden numbers are whole steps of the next product's right panel. */
static int64_t feature_quantum(const ith_product_kernel *kernel)
{
    int64_t quantum = kernel->rows;
    while (quantum % kernel->step)
        quantum += kernel->rows;
    return quantum;
}

/* Chooses the blocks of k and the features of a unit. Blocks of k have about the same depth. Converted rows lie an odd
 * number of cache lines apart, so that rows one below the other use different sets of the cache. */
static void choose_blocks(ith_linear_size *s)
{
    const ith_product_kernel *kernel = s->kernel;
    s->element = kernel->type == ITH_F32 && kernel->parts == 1 ? 4 : 2;
    s->parts_max = ith_product_parts(kernel, ITH_F32, s->types.stored == ITH_BF16);
    const int64_t depth = kernel->block_steps ? kernel->block_steps : kernel->depth;
    s->depth = ith_round_up(ith_div_up(s->in, ith_div_up(s->in, depth)), kernel->step);
    s->blocks = ith_div_up(s->in, s->depth);
    s->row_bytes = ith_round_up(s->depth * s->element, 2 * CACHE_LINE) + CACHE_LINE;
    s->quantum = feature_quantum(kernel);
    int64_t most = kernel->block_bytes / (s->row_bytes * s->parts_max) / s->quantum;
    s->features = ith_min64(ith_max64(most, 1) * s->quantum, ith_round_up(s->out, s->quantum));
}

/* Adds the sizes and the types of a layer to the set's list. Layers of the same size share an entry. */
static ith_status add_size(ith_linear_set *set, int64_t in, int64_t out, const ith_operand_types *types)
{
    ith_context *context = set->context;
    if (in < 1 || out < 1 || in > INT32_MAX || out > INT32_MAX)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a linear layer of %lld to %lld; both must be from 1 to 2^31 - 1",
                        (long long)in, (long long)out);
    ith_status status = ith_operand_types_check(context, types, ITH_F32, "a linear layer");
    if (status)
        return status;
    const ith_product_kernel *kernel = ith_product_kernel_choose(types->multiplied, ith_context_cpu(context));
    if (!kernel)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "this processor has no instructions that multiply bf16");
    ith_linear_size *size = ith_alloc_zero(context, 1, sizeof *size, "a linear layer");
    if (!size)
        return ITH_ERR_MEMORY;
    *size = (ith_linear_size){.next = set->sizes, .in = in, .out = out, .types = *types, .kernel = kernel};
    size->exact = ith_product_kernel_exact(ith_context_cpu(context));
    size->unpack = ith_unpack_choose(ith_context_cpu(context));
    size->rowops = ith_rowops_choose(ith_context_cpu(context));
    set->sizes = size, set->count++;
    choose_blocks(size);
    size->may_merge = ith_linear_may_merge(size, set->merges_most);
    return ITH_OK;
}

ith_linear_size *ith_linear_size_of(const ith_linear_set *set, int64_t in, int64_t out, const ith_operand_types *types)
{
    ith_linear_size *s = set->sizes;
    while (s && (s->in != in || s->out != out || !ith_operand_types_equal(s->types, *types)))
        s = s->next;
    return s;
}

/* ---- Sets ------------------------------------------------------------------------------------------------------ */

ith_status ith_linear_set_create(ith_context *context, ith_linear_keep keep, ith_linear_set **set)
{
    *set = ith_alloc_zero(context, 1, sizeof **set, "a set of linear layers");
    if (!*set)
        return ITH_ERR_MEMORY;
    (*set)->context = context, (*set)->keep = keep, (*set)->merges_most = ITH_LINEAR_MERGES_MOST;
    return ITH_OK;
}

void ith_linear_set_destroy(ith_linear_set **set)
{
    if (!*set)
        return;
    ith_context *context = (*set)->context;
    while ((*set)->sizes) {
        ith_linear_size *size = (*set)->sizes;
        (*set)->sizes = size->next;
        ith_free(context, size);
    }
    ith_free(context, *set);
    *set = NULL;
}

ith_status ith_linear_set_status(const ith_linear_set *set)
{
    return set->status;
}

int64_t ith_linear_set_bytes(const ith_linear_set *set)
{
    return (int64_t)sizeof *set + ITH_ALLOC_HEADER + set->count * ((int64_t)sizeof(ith_linear_size) + ITH_ALLOC_HEADER);
}

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

ith_linear *ith_linear_place(ith_linear_set *set, int64_t in, int64_t out, ith_operand_types types, int64_t matrices,
                             ith_arena *arena, ith_linear_size **size)
{
    if (!set->status && !ith_linear_size_of(set, in, out, &types))
        set->status = add_size(set, in, out, &types);
    *size = set->status ? NULL : ith_linear_size_of(set, in, out, &types);
    if (!*size)
        return NULL;
    ith_linear *place = ith_arena_take(arena, 1, sizeof *place), linear = {.size = *size};
    linear.weights = ith_arena_take(arena, matrices, sizeof *linear.weights);
    if (set->keep == ITH_LINEAR_KEEP_ALL)
        linear.packed = ith_linear_take_packed(*size, arena);
    if (arena->overflow)
        set->status = ith_fail(set->context, ITH_ERR_MEMORY,
                               "linear layers with one of %lld to %lld take more memory than a size can hold",
                               (long long)in, (long long)out);
    if (place)
        *place = linear;
    return place;
}

ith_linear *ith_linear_lay_out(ith_linear_set *set, int64_t in, int64_t out, ith_operand_types types, ith_arena *arena)
{
    ith_linear_size *size = NULL;
    ith_linear *linear = ith_linear_place(set, in, out, types, ITH_LINEAR_MATRICES_MAX, arena, &size);
    float *bias = size ? ith_arena_take(arena, out, sizeof *bias) : NULL;
    if (size)
        size->applied = true;
    if (linear)
        linear->bias = bias, linear->interleaved = size && size->kernel->interleave;
    return linear;
}

/* Checks the number, the types and the rows of a layer's matrices. */
static ith_status check_weights(ith_context *context, const ith_linear_size *size, const ith_linear_weight *weights,
                                int count)
{
    int64_t rows = 0;
    ith_status status = ITH_OK;
    if (count < 1 || count > ITH_LINEAR_MATRICES_MAX)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%d matrices for a linear layer; it has from 1 to %d", count,
                        ITH_LINEAR_MATRICES_MAX);
    for (int i = 0; i < count && !status; i++) {
        status = ith_operand_types_check(context, &size->types, weights[i].type, "a linear layer");
        if (!status && size->in % ith_dtype_run(weights[i].type))
            return ith_fail(context, ITH_ERR_UNSUPPORTED,
                            "a linear layer of %lld inputs with weights of type %s, which come in blocks of %lld: the "
                            "inputs must be a multiple of that",
                            (long long)size->in, ith_dtype_name(weights[i].type),
                            (long long)ith_dtype_run(weights[i].type));
        if (!status && (weights[i].rows < 1 || weights[i].rows > size->out - rows))
            return ith_fail(
                context, ITH_ERR_ARGUMENT,
                "matrix %d of a linear layer has %lld rows; each has at least 1, and all together have %lld", i,
                (long long)weights[i].rows, (long long)size->out);
        rows += weights[i].rows;
    }
    if (!status && rows != size->out)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "the matrices of a linear layer have %lld rows instead of %lld",
                          (long long)rows, (long long)size->out);
    return status;
}

int64_t ith_linear_packed_bytes(const ith_linear_size *size)
{
    return size->blocks * size->parts_max * ith_linear_left_rows(size, size->out) * size->row_bytes;
}

char *ith_linear_take_packed(const ith_linear_size *size, ith_arena *arena)
{
    const int64_t rows = ith_linear_left_rows(size, size->out);
    return ith_arena_take(arena, size->blocks * size->parts_max * rows, size->row_bytes);
}

int64_t ith_linear_pieces(const ith_linear_size *size)
{
    return ith_div_up(size->out, size->features) * size->blocks;
}

ith_linear_left ith_linear_packed_left(const ith_linear *linear, int64_t first, int64_t block)
{
    const ith_linear_size *s = linear->size;
    const int64_t part_bytes = ith_linear_left_rows(s, s->out) * s->row_bytes;
    return (ith_linear_left){linear->packed + block * s->parts_max * part_bytes + first * s->row_bytes, part_bytes};
}

const char *ith_linear_pack_piece(const ith_linear *linear, int64_t piece)
{
    const ith_linear_size *s = linear->size;
    const int64_t block = piece % s->blocks, first = piece / s->blocks * s->features;
    const ith_linear_left to = ith_linear_packed_left(linear, first, block);
    return ith_linear_convert(linear, first, ith_min64(s->features, s->out - first), block, to.first, to.part_bytes);
}

/* Converts all weights of a layer into linear->packed. */
static ith_status keep_packed(ith_context *context, const ith_linear *linear)
{
    const int64_t pieces = ith_linear_pieces(linear->size);
    const char *cut = NULL;
#pragma omp parallel for schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        if (ith_context_interrupted(context))
            continue;
        const char *file = ith_linear_pack_piece(linear, piece);
#pragma omp critical(ith_linear_cut)
        if (file)
            cut = file;
    }
    if (cut)
        return ith_fail_file_fault(context, cut);
    return ith_context_check(context);
}

ith_status ith_linear_take(ith_context *context, ith_linear *linear, const ith_linear_weight *matrices, int count)
{
    const ith_linear_size *size = linear->size;
    linear->count = count, linear->parts = 1;
    for (int i = 0; i < count; i++) {
        int needed = matrices[i].data ? ith_linear_weight_parts(size, &matrices[i]) : 1;
        linear->weights[i] = matrices[i];
        linear->parts = needed > linear->parts ? needed : linear->parts;
    }
    if (linear->merged_count) /* sums of weights and additions are f32 */
        linear->parts = ith_product_parts(size->kernel, ITH_F32, size->types.stored == ITH_BF16);
    const bool is_complete = linear->merged_count == linear->merged_places;
    return linear->packed && is_complete ? keep_packed(context, linear) : ITH_OK;
}

ith_status ith_linear_attach(ith_context *context, ith_linear *linear, const ith_linear_weight *matrices, int count,
                             const float *bias)
{
    const ith_linear_size *size = linear->size;
    ith_status status = check_weights(context, size, matrices, count);
    if (status)
        return status;
    if (bias)
        memcpy(linear->bias, bias, (size_t)size->out * sizeof *bias);
    else
        memset(linear->bias, 0, (size_t)size->out * sizeof *bias);
    return ith_linear_take(context, linear, matrices, count);
}

bool ith_linear_is_packed(const ith_linear *linear)
{
    return linear->packed;
}

int ith_linear_matrices(const ith_linear *linear, const ith_linear_weight **matrices)
{
    *matrices = linear->weights;
    return linear->count;
}

int64_t ith_linear_inputs(const ith_linear *linear)
{
    return linear->size->in;
}

int64_t ith_linear_outputs(const ith_linear *linear)
{
    return linear->size->out;
}

void ith_linear_relocate(ith_linear *linear, int index, const void *data)
{
    linear->weights[index].data = data;
    linear->weights[index].file = NULL;
}

ith_instructions ith_linear_instructions(const ith_linear *linear)
{
    return linear->size->kernel->instructions[linear->parts - 1];
}

/* Asks for the rows of a matrix, `in` numbers each. */
static void prefetch(const ith_linear_weight *w, int64_t in)
{
    if (w->file)
        ith_prefetch(w->data, w->rows * ith_dtype_row_bytes(w->type, in));
}

void ith_linear_prefetch(const ith_linear *linear)
{
    const int64_t in = linear->size->in;
    for (int i = 0; i < linear->count && !linear->packed; i++)
        prefetch(&linear->weights[i], in);
    for (int64_t i = 0; i < linear->merged_count && !linear->packed; i++) {
        const ith_linear_addition *a = &linear->merged[i];
        prefetch(&a->down, in);
        prefetch(&a->up, a->down.rows ? a->down.rows : in);
    }
    for (int64_t i = 0; i < linear->added_count; i++)
        ith_linear_prefetch(linear->added[i].up);
    if (linear->down)
        ith_linear_prefetch(linear->down);
}
