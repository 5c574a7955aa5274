/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the keys and values of cross-attention in every layer (dit_keys.h). */
#include "dit_keys.h"

#include "../../base/context.h"
#include "../../base/size.h"
#include "dit_heads.h"

#include <omp.h>

ith_dit_key_maker ith_dit_key_maker_of(ith_context *context, const ith_dit *dit, int64_t rows)
{
    return (ith_dit_key_maker){
        .context = context, .dit = dit, .ops = ith_rowops_choose(ith_context_cpu(context)), .rows = rows};
}

void ith_dit_key_maker_lay_out(ith_dit_key_maker *m, ith_arena *arena)
{
    const int64_t row_bytes = m->dit->config.dim * (int64_t)sizeof(float);
    m->embedded = ith_arena_take(arena, m->rows, row_bytes);
    ith_linear_workspace_lay_out(m->dit->memory.linears, omp_get_max_threads(), m->rows, arena, &m->linears);
    if (m->dit->types.attention != ITH_F32)
        m->unrounded = ith_arena_take(arena, ith_min64(m->rows, ith_linear_strip(&m->linears)), row_bytes);
}

/* The bytes of a layer's keys and values. */
static int64_t layer_bytes(const ith_dit *dit, int64_t rows)
{
    return rows * 2 * dit->config.dim * ith_dtype_bytes(dit->types.attention);
}

int64_t ith_dit_key_bytes(const ith_dit *dit, int64_t rows)
{
    return dit->config.layers * layer_bytes(dit, rows);
}

/* Computes the keys and values of one layer. */
static ith_status make_layer(const ith_dit_key_maker *m, ith_dit_key_weights weights, void *keys_values)
{
    ith_linear_rows embedded = {m->embedded, m->dit->config.dim};
    ith_dit_heads kv = {.dit = m->dit,
                        .ops = m->ops,
                        .out = keys_values,
                        .parts = 2,
                        .normed = 1,
                        .scales = {weights.norm_k},
                        .unrounded = m->unrounded,
                        .strip = ith_linear_strip(&m->linears)};
    const ith_linear_input x = ith_linear_from_rows(&embedded);
    const ith_linear_output y = ith_dit_heads_output(&kv);
    return ith_linear_apply(m->context, weights.kv, &m->linears, m->rows, &x, &y);
}

ith_status ith_dit_keys_make(const ith_dit_key_maker *m, ith_dit_key_weights_fn weights, void *keys_values)
{
    const ith_dit *dit = m->dit;
    const int64_t layers = dit->config.layers, bytes = layer_bytes(dit, m->rows);
    ith_status status = ITH_OK;
    for (int64_t i = 0; i < layers && !status; i++) {
        if (i + 1 < layers)
            ith_linear_prefetch(weights(&dit->layers[i + 1]).kv);
        status = make_layer(m, weights(&dit->layers[i]), (char *)keys_values + i * bytes);
    }
    return status;
}
