/* SPDX-License-Identifier: Apache-2.0 */
/* Additions to linear layers: their memory and their matrices. Dense additions are merged: added to w when w is
 * converted. Low-rank additions are merged too if the size of the layer says so (may_merge). Otherwise they are
 * separate products, y = w x + b + up t with t = factor down x.
 *
 * One layer `down` holds the matrices `down` of all separate products of a layer, one below the other. Its outputs are
 * the packed rows t, right panels whose steps are the ranks of these additions, one behind the other. Rows of zeros
 * round each rank up to whole steps of the kernel, because a panel can be cut only there. */
#include "../base/size.h"
#include "linear_set.h"

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Checks the sizes of the additions to a layer of `out` outputs. Sets *steps to the steps of the packed rows t. */
static ith_status check_sizes(ith_context *context, int64_t step, int64_t out, const ith_linear_addition *additions,
                              int64_t count, int64_t *steps)
{
    *steps = 0;
    for (int64_t i = 0; i < count; i++) {
        const ith_linear_addition *a = &additions[i];
        if (a->matrix < 0 || a->matrix >= ITH_LINEAR_MATRICES_MAX)
            return ith_fail(context, ITH_ERR_ARGUMENT, "an addition to matrix %d of a linear layer; it has at most %d",
                            a->matrix, ITH_LINEAR_MATRICES_MAX);
        if (a->down.rows < 0 || a->down.rows > INT32_MAX - step || a->up.rows < 1 || a->up.rows > out)
            return ith_fail(context, ITH_ERR_ARGUMENT,
                            "an addition of rank %lld to %lld outputs of a linear layer with %lld; a rank is at most "
                            "2^31 - 1, and 0 for a dense addition",
                            (long long)a->down.rows, (long long)a->up.rows, (long long)out);
        *steps += ith_round_up(a->down.rows, step);
        if (*steps > INT32_MAX)
            return ith_fail(context, ITH_ERR_ARGUMENT, "additions of more than 2^31 - 1 ranks to a linear layer");
    }
    return ITH_OK;
}

/* Whether an addition to a layer of this size is a separate product. */
static bool is_separate(const ith_linear_size *size, const ith_linear_addition *a)
{
    return a->down.rows && !size->may_merge;
}

/* The number of additions that are separate products. */
static int64_t count_separate(const ith_linear_size *size, const ith_linear_addition *additions, int64_t count)
{
    int64_t separate = 0;
    for (int64_t i = 0; i < count; i++)
        separate += is_separate(size, &additions[i]);
    return separate;
}

/* The sums of the sizes of the separate additions that have been laid out so far. */
typedef struct places {
    int64_t at;                              /* steps of their packed rows t */
    int64_t blocks[ITH_LINEAR_MATRICES_MAX]; /* blocks of k that they append to each matrix */
} places;

/* Lays out a separate addition to a layer of this size. */
static ith_linear_added lay_out_one(ith_linear_set *set, ith_linear_size *size, const ith_linear_addition *a, places *p,
                                    ith_arena *arena)
{
    ith_linear_size *up_size = NULL;
    ith_linear_added added = {.matrix = a->matrix, .at = p->at, .number = p->blocks[a->matrix]};
    added.up = ith_linear_place(set, a->down.rows, a->up.rows, size->types, 1, arena, &up_size);
    p->at += ith_round_up(a->down.rows, size->kernel->step);
    if (up_size) {
        p->blocks[a->matrix] += up_size->blocks;
        size->added_blocks = ith_max64(size->added_blocks, p->blocks[a->matrix]);
        size->added_row_bytes = ith_max64(size->added_row_bytes, up_size->row_bytes);
    }
    return added;
}

/* Lays out the places of the merged additions to a layer of this size: `merged` of its `count` additions. Also lays out
 * the layer's converted weights if the set keeps the weights of layers with merged additions. */
static void lay_out_merged(const ith_linear_set *set, ith_linear_size *size, ith_linear *linear,
                           const ith_linear_addition *additions, int64_t count, int64_t merged, ith_arena *arena)
{
    ith_linear_addition *sizes = merged ? ith_arena_take(arena, merged, sizeof *sizes) : NULL;
    bool merges = false;
    for (int64_t i = 0, n = 0; i < count; i++) {
        if (is_separate(size, &additions[i]))
            continue;
        merges = merges || additions[i].down.rows;
        if (sizes)
            sizes[n++] = additions[i];
    }
    size->merges = size->merges || (merges && set->keep == ITH_LINEAR_KEEP_NONE);
    const bool keeps = merges && set->keep == ITH_LINEAR_KEEP_MERGED;
    char *packed = keeps ? ith_linear_take_packed(size, arena) : NULL;
    if (!linear)
        return;
    linear->merged = sizes, linear->merged_places = merged, linear->merges = merges;
    if (packed)
        linear->packed = packed;
}

ith_linear *ith_linear_lay_out_with(ith_linear_set *set, int64_t in, int64_t out, ith_operand_types types,
                                    const ith_linear_addition *additions, int64_t count, ith_arena *arena)
{
    ith_linear *linear = ith_linear_lay_out(set, in, out, types, arena);
    ith_linear_size *size = set->status ? NULL : ith_linear_size_of(set, in, out, &types), *down_size = NULL;
    int64_t steps = 0;
    if (size && count)
        set->status = check_sizes(set->context, size->kernel->step, out, additions, count, &steps);
    if (!count || set->status)
        return linear;
    const int64_t separate = count_separate(size, additions, count);
    lay_out_merged(set, size, linear, additions, count, count - separate, arena);
    if (!separate)
        return linear;
    places p = {0};
    ith_linear_added *added = ith_arena_take(arena, separate, sizeof *added);
    for (int64_t i = 0, n = 0; i < count; i++) {
        if (!is_separate(size, &additions[i]))
            continue;
        const ith_linear_added one = lay_out_one(set, size, &additions[i], &p, arena);
        if (added)
            added[n++] = one;
    }
    ith_linear *down = ith_linear_place(set, in, steps, types, 2 * separate, arena, &down_size);
    float *factors = ith_arena_take(arena, steps, sizeof *factors);
    if (down_size)
        down_size->applied = true;
    size->added_steps = ith_max64(size->added_steps, steps);
    if (linear)
        linear->added = added, linear->added_count = separate, linear->down = down, linear->factors = factors;
    return linear;
}

double ith_linear_added_operations(const ith_linear *linear, ith_linear_keep keep, int64_t rows)
{
    double sum = 0;
    for (int64_t i = 0; i < linear->added_count; i++) {
        const ith_linear_size *up = linear->added[i].up->size;
        sum += 2 * (double)rows * (double)up->in * (double)(linear->size->in + up->out);
    }
    for (int64_t i = 0; i < linear->merged_places && keep == ITH_LINEAR_KEEP_NONE; i++) {
        const ith_linear_addition *a = &linear->merged[i];
        sum += 2 * (double)a->down.rows * (double)linear->size->in * (double)a->up.rows;
    }
    return sum;
}

/* ---- Matrices -------------------------------------------------------------------------------------------------- */

/* Whether an addition has the sizes of its place: number n of the separate additions, or of the merged ones. */
static bool fits_place(const ith_linear *linear, const ith_linear_addition *a, int64_t n)
{
    if (is_separate(linear->size, a)) {
        const ith_linear_added *added = &linear->added[n];
        return a->matrix == added->matrix && a->down.rows == added->up->size->in && a->up.rows == added->up->size->out;
    }
    const ith_linear_addition *place = &linear->merged[n];
    return a->matrix == place->matrix && a->down.rows == place->down.rows && a->up.rows == place->up.rows;
}

/* Checks the matrix, the sizes and the types of an addition, whose place has number n. */
static ith_status check_addition(ith_context *context, const ith_linear *linear, const ith_linear_addition *a,
                                 int64_t n)
{
    const ith_operand_types *types = &linear->size->types;
    if (a->matrix < 0 || a->matrix >= linear->count || a->up.rows != linear->weights[a->matrix].rows)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "an addition of %lld rows to matrix %d of a linear layer: the layer has no such matrix",
                        (long long)a->up.rows, a->matrix);
    if (!fits_place(linear, a, n))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s addition %lld of a linear layer has another matrix or rank than its place",
                        a->down.rows ? "low-rank" : "dense", (long long)n);
    ith_status status = ith_operand_types_check(context, types, a->up.type, "an addition to a linear layer");
    if (!status && a->down.rows)
        status = ith_operand_types_check(context, types, a->down.type, "an addition to a linear layer");
    return status;
}

/* The first output feature of matrix number `matrix`. */
static int64_t first_of(const ith_linear *linear, int matrix)
{
    int64_t first = 0;
    for (int i = 0; i < matrix; i++)
        first += linear->weights[i].rows;
    return first;
}

/* Sets the matrix `up` of separate addition number n, and its part of the matrices of `down` and of the factors. */
static ith_status take_one(ith_context *context, ith_linear *linear, const ith_linear_addition *a, int64_t n,
                           ith_linear_weight *downs)
{
    ith_linear_added *added = &linear->added[n];
    const int64_t rank = a->down.rows, steps = ith_round_up(rank, linear->size->kernel->step);
    added->first = first_of(linear, a->matrix);
    downs[2 * n] = a->down;
    downs[2 * n + 1] = (ith_linear_weight){.type = ITH_F32, .rows = steps - rank};
    for (int64_t step = 0; step < steps; step++)
        linear->factors[added->at + step] = step < rank ? a->factor : 0;
    return ith_linear_take(context, added->up, &a->up, 1);
}

/* Sets the additions of a layer, which are known to be legal. */
static ith_status take(ith_context *context, ith_linear *linear, const ith_linear_addition *additions, int64_t count)
{
    ith_status status = ITH_OK;
    int64_t separate = 0, merged = 0;
    ith_linear_weight *downs = ith_alloc_zero(context, 2 * linear->added_count, sizeof *downs, "additions");
    if (!downs)
        return ITH_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++)
        if (is_separate(linear->size, &additions[i]))
            status = take_one(context, linear, &additions[i], separate++, downs);
        else
            linear->merged[merged++] = additions[i];
    if (!status && separate)
        status = ith_linear_take(context, linear->down, downs, (int)(2 * separate));
    if (!status && merged) {
        linear->merged_count = merged;
        status = ith_linear_take(context, linear, linear->weights, linear->count);
    }
    ith_free(context, downs);
    return status;
}

ith_status ith_linear_add(ith_context *context, ith_linear *linear, const ith_linear_addition *additions, int64_t count)
{
    ith_status status = ITH_OK;
    const int64_t separate = count_separate(linear->size, additions, count);
    int64_t checked[2] = {0, 0}; /* merged and separate additions */
    if (separate != linear->added_count || count - separate != linear->merged_places)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%lld additions to a linear layer with places for %lld",
                        (long long)count, (long long)(linear->added_count + linear->merged_places));
    for (int64_t i = 0; i < count && !status; i++)
        status = check_addition(context, linear, &additions[i], checked[is_separate(linear->size, &additions[i])]++);
    return status || !count ? status : take(context, linear, additions, count);
}
