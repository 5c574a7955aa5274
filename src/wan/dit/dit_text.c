/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt's keys and values in every layer: text embedding (linear, GELU, linear), then per layer k = RMSNorm(w_k y),
 * v = w_v y. The zero rows behind a prompt of n rows are all alike: one of them stands for all, with log(512 - n) added
 * to its logit. Prompts of a batch are padded to the longest with keys whose bias is -infinity. */
#include "../../base/context.h"
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../../kernels/rowops.h"
#include "dit_weights.h"

#include <math.h>
#include <string.h>

typedef struct maker {
    ith_context *context;
    const ith_dit *dit;
    const ith_rowops *ops;
    ith_dit_text *text;
    int64_t rows;             /* batch * keys */
    float *in, *hidden, *out; /* [rows, text_dim], [rows, dim], [rows, 2 dim] */
} maker;

static void fill_rows(const maker *m, const float *const *rows, const int64_t *counts)
{
    const int64_t text_dim = m->dit->config.text_dim, keys = m->text->keys;
    memset(m->in, 0, (size_t)(m->rows * text_dim) * sizeof(float));
    for (int64_t b = 0; b < m->text->batch; b++) {
        if (counts[b])
            memcpy(m->in + b * keys * text_dim, rows[b], (size_t)(counts[b] * text_dim) * sizeof(float));
        float *bias = m->text->key_bias + b * keys;
        for (int64_t key = 0; key < keys; key++)
            bias[key] = key < counts[b] ? 0.0f : -INFINITY;
        if (counts[b] < ITH_DIT_TEXT_LEN)
            bias[counts[b]] = (float)log((double)(ITH_DIT_TEXT_LEN - counts[b]));
    }
}

ith_status ith_dit_embed_text(ith_context *context, const ith_dit *dit, int64_t count, const float *rows, float *hidden,
                              float *out)
{
    const int64_t dim = dit->config.dim;
    ith_status status = ith_linear_run(context, dit->text_1, count, rows, dit->config.text_dim, hidden, dim);
    if (status)
        return status;
    ith_rowops_choose(ith_context_cpu(context))->gelu_tanh(hidden, hidden, count * dim);
    return ith_linear_run(context, dit->text_2, count, hidden, dim, out, dim);
}

static ith_status make_layer(const maker *m, int64_t layer)
{
    const int64_t dim = m->dit->config.dim, numbers = m->rows * 2 * dim;
    const ith_dit_block *block = &m->dit->blocks[layer];
    const ith_dtype type = m->dit->types.attention;
    ith_status status = ith_linear_run(m->context, block->cross_kv, m->rows, m->hidden, dim, m->out, 2 * dim);
    if (status)
        return status;
    for (int64_t row = 0; row < m->rows; row++) {
        float *k = m->out + row * 2 * dim;
        m->ops->rms_norm(k, k, block->cross_norm_k, dim, (float)m->dit->config.eps);
    }
    ith_from_f32((char *)m->text->keys_values + layer * numbers * ith_dtype_bytes(type), type, m->out, numbers);
    return ITH_OK;
}

static ith_status make(maker *m, const float *const *rows, const int64_t *counts)
{
    const ith_dit_config *c = &m->dit->config;
    const int64_t element = ith_dtype_bytes(m->dit->types.attention);
    m->in = ith_alloc(m->context, m->rows, c->text_dim * 4, "a prompt's rows");
    m->hidden = ith_alloc(m->context, m->rows, c->dim * 4, "a prompt's embedding");
    m->out = ith_alloc(m->context, m->rows, 2 * c->dim * 4, "a prompt's keys and values");
    m->text->key_bias = ith_alloc(m->context, m->rows, sizeof(float), "the prompts' key bias");
    m->text->keys_values =
        ith_alloc(m->context, c->layers * m->rows, 2 * c->dim * element, "the prompts' keys and values");
    if (!m->in || !m->hidden || !m->out || !m->text->key_bias || !m->text->keys_values)
        return ITH_ERR_MEMORY;
    fill_rows(m, rows, counts);
    ith_status status = ith_dit_embed_text(m->context, m->dit, m->rows, m->in, m->out, m->hidden);
    for (int64_t layer = 0; layer < c->layers && !status; layer++)
        status = make_layer(m, layer);
    return status;
}

ith_status ith_dit_text_create(ith_context *context, const ith_dit *dit, int64_t batch, const float *const *rows,
                               const int64_t *counts, ith_dit_text **out)
{
    *out = NULL;
    if (batch < 1)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%lld prompts: there must be at least 1", (long long)batch);
    int64_t longest = 0;
    for (int64_t b = 0; b < batch; b++) {
        if (counts[b] < 0 || counts[b] > ITH_DIT_TEXT_LEN)
            return ith_fail(context, ITH_ERR_ARGUMENT, "prompt %lld has %lld rows; at most %d are attended to",
                            (long long)b, (long long)counts[b], ITH_DIT_TEXT_LEN);
        longest = ith_max64(longest, counts[b]);
    }
    ith_dit_text *text = ith_alloc_zero(context, 1, sizeof *text, "a text");
    if (!text)
        return ITH_ERR_MEMORY;
    text->batch = batch, text->keys = ith_dit_text_keys(longest);
    maker m = {.context = context,
               .dit = dit,
               .ops = ith_rowops_choose(ith_context_cpu(context)),
               .text = text,
               .rows = batch * text->keys};
    ith_status status = make(&m, rows, counts);
    ith_free(context, m.in);
    ith_free(context, m.hidden);
    ith_free(context, m.out);
    if (status)
        ith_dit_text_free(context, &text);
    *out = text;
    return status;
}

void ith_dit_text_free(ith_context *context, ith_dit_text **text)
{
    if (!text || !*text)
        return;
    ith_free(context, (*text)->keys_values);
    ith_free(context, (*text)->key_bias);
    ith_free(context, *text);
    *text = NULL;
}
