/* SPDX-License-Identifier: Apache-2.0 */
/* Puts rows of q, k and v where attention reads them. A linear layer gives a row in pieces. RMSNorm needs the whole
 * row, so it follows the last piece, while the row is still in a cache. */
#include "dit_heads.h"

#include "../../base/size.h"

#include <string.h>

/* The vectors of a row before their norm: [normed, dim]. In f32 they are normalised in place. */
static float *before_norm(const ith_dit_heads *h, int64_t row)
{
    const int64_t dim = h->dit->config.dim;
    return h->unrounded ? h->unrounded + row % h->strip * h->normed * dim : (float *)h->out + row * h->parts * dim;
}

static void take(void *user, int64_t row, int64_t first, int64_t count, const float *y)
{
    const ith_dit_heads *h = user;
    const int64_t dim = h->dit->config.dim, before = ith_max64(0, ith_min64(count, h->normed * dim - first));
    const int64_t copied = h->unrounded ? before : count;
    if (copied)
        memcpy(before_norm(h, row) + first, y, (size_t)copied * sizeof *y);
    if (copied < count)
        h->ops->bf16_from_f32((uint16_t *)h->out + row * h->parts * dim + first + copied, y + copied, count - copied);
}

static void finish(void *user, int64_t row)
{
    const ith_dit_heads *h = user;
    const ith_dit_config *c = &h->dit->config;
    float *vectors = before_norm(h, row);
    for (int64_t i = 0; i < h->normed; i++)
        h->ops->rms_norm(vectors + i * c->dim, vectors + i * c->dim, h->scales[i], c->dim, (float)c->eps);
    if (h->cosines) {
        const int64_t at = row % h->tokens * (c->head_dim / 2);
        h->ops->rope(vectors, h->cosines + at, h->sines + at, h->normed * c->heads, c->head_dim);
    }
    if (h->unrounded)
        h->ops->bf16_from_f32((uint16_t *)h->out + row * h->parts * c->dim, vectors, h->normed * c->dim);
}

ith_linear_output ith_dit_heads_output(ith_dit_heads *heads)
{
    return (ith_linear_output){.take = take, .finish = finish, .user = heads};
}
