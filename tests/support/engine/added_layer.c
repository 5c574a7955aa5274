/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/added_layer.h"

#include "kernels/rowops.h"
#include "linear/linear_set.h"
#include "support/engine/kinds.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Random numbers that `type` can hold. *stored: a copy in this type. */
static float *numbers(uint64_t *seed, int64_t count, ith_dtype type, void **stored)
{
    float *x = random_floats(seed, count);
    *stored = malloc((size_t)(count * ith_dtype_bytes(type)));
    assert_non_null(*stored);
    if (type == ITH_F32) {
        memcpy(*stored, x, (size_t)count * sizeof *x);
    } else if (ith_unpack_has(type)) {
        for (int64_t i = 0; i < count; i++)
            ((unsigned char *)*stored)[i] = (unsigned char)(random_bits(seed) & 0xbf); /* none is NaN */
        ith_unpack_ref(type, *stored, 0, count, x);
    } else {
        ith_from_f32(*stored, type, x, count);
        ith_to_f32(x, *stored, type, count);
    }
    return x;
}

static void lay_out(added_layer *s, int kind)
{
    s->layer.linear = ith_linear_lay_out_with(s->layer.set, s->in, s->out, operand_kinds[kind], s->additions, s->count,
                                              &s->layer.arena);
    assert_int_equal(ith_linear_set_status(s->layer.set), ITH_OK);
}

void added_layer_attach_weights(ith_context *context, added_layer *s, int kind, ith_linear_keep keep)
{
    ith_linear_weight weights[ADDED_MATRICES];
    s->layer = (one_layer){0};
    assert_int_equal(ith_linear_set_create(context, keep, &s->layer.set), ITH_OK);
    s->layer.set->merges_most = s->separate ? 0 : ITH_LINEAR_MERGES_MOST;
    lay_out(s, kind);
    assert_int_equal(ith_arena_allocate(context, &s->layer.arena, "a layer"), ITH_OK);
    lay_out(s, kind);
    for (int i = 0; i < s->matrices; i++) {
        const bool has_own = s->stored[i].numbers;
        weights[i] = (ith_linear_weight){.data = has_own ? s->stored[i].numbers : s->w + s->begins[i] * s->in,
                                         .type = has_own ? s->stored[i].type : ITH_F32,
                                         .rows = s->begins[i + 1] - s->begins[i]};
    }
    assert_int_equal(ith_linear_attach(context, s->layer.linear, weights, (int)s->matrices, s->bias), ITH_OK);
}

void added_layer_attach(ith_context *context, added_layer *s, int kind, ith_linear_keep keep)
{
    added_layer_attach_weights(context, s, kind, keep);
    assert_int_equal(ith_linear_add(context, s->layer.linear, s->additions, s->count), ITH_OK);
}

/* Makes random matrices of several types. */
static void make_weights(added_layer *s, uint64_t *seed)
{
    static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16, ITH_F8_E4M3};
    s->w = new_floats(s->out * s->in);
    for (int64_t i = 0; i < s->matrices; i++) {
        const int64_t count = (s->begins[i + 1] - s->begins[i]) * s->in;
        s->stored[i].type = types[random_below(seed, 4)];
        float *x = numbers(seed, count, s->stored[i].type, &s->stored[i].numbers);
        memcpy(s->w + s->begins[i] * s->in, x, (size_t)count * sizeof *x);
        free(x);
    }
}

added_layer added_layer_make(ith_context *context, uint64_t *seed, int64_t in, int64_t out, int64_t most_rank, int kind,
                             bool separate)
{
    static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
    added_layer s = {.in = in, .out = out, .separate = separate};
    s.matrices = out < ADDED_MATRICES ? 1 : random_between(seed, 1, ADDED_MATRICES);
    s.count = random_between(seed, 1, ADDED_MOST);
    for (int64_t i = 1; i <= s.matrices; i++)
        s.begins[i] = i == s.matrices ? out : random_between(seed, s.begins[i - 1] + 1, out - (s.matrices - i));
    make_weights(&s, seed);
    s.bias = random_floats(seed, out);
    for (int64_t i = 0; i < s.count; i++) {
        ith_linear_addition *a = &s.additions[i];
        const ith_dtype type = types[random_below(seed, 3)];
        a->matrix = (int)random_below(seed, (uint32_t)s.matrices);
        const int64_t rank = random_below(seed, 4) ? random_between(seed, 1, most_rank) : 0; /* 0: dense */
        const int64_t rows = s.begins[a->matrix + 1] - s.begins[a->matrix];
        s.parts[i].rank = rank, a->factor = 1.5f * random_signed(seed);
        s.parts[i].down = numbers(seed, rank * in, type, &s.parts[i].stored_down);
        s.parts[i].up = numbers(seed, rows * (rank ? rank : in), type, &s.parts[i].stored_up);
        a->down = (ith_linear_weight){.data = s.parts[i].stored_down, .type = type, .rows = rank};
        a->up = (ith_linear_weight){.data = s.parts[i].stored_up, .type = type, .rows = rows};
    }
    added_layer_attach(context, &s, kind, ITH_LINEAR_KEEP_NONE);
    return s;
}

void added_layer_free(ith_context *context, added_layer *s)
{
    one_layer_free(context, &s->layer);
    free(s->w), free(s->bias);
    for (int64_t i = 0; i < s->matrices; i++)
        free(s->stored[i].numbers);
    for (int64_t i = 0; i < s->count; i++) {
        free(s->parts[i].down), free(s->parts[i].up);
        free(s->parts[i].stored_down), free(s->parts[i].stored_up);
    }
}
