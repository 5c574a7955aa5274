/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of wisdom about tiles (tile_wisdom.h):
 *
 *     tiles KERNEL TYPE head_dim=D softmax=S keys=N: block_q A block_kv B block_kv_compute C block_kv_compute_in E
 *         rate R usual_rate U
 *
 * on one line, with rates in 10^6 operations a second. */
#include "tile_wisdom.h"

#include "tile_sizes.h"

#include <inttypes.h>
#include <stdio.h>

enum { LEAST_CLASS = 256, MOST_CLASS = 1 << 20 };

_Static_assert(ITH_ATTN_NAME_BYTES == 48, "the format in ith_tile_wisdom_is_legal reads names of another length");

int64_t ith_tile_class(int64_t keys)
{
    int64_t class = LEAST_CLASS;
    /* the limit between two classes is their geometric mean, sqrt(2) times the smaller one */
    while (class < MOST_CLASS && (double)keys > 1.4142135623730951 * (double)class)
        class *= 2;
    return class;
}

static void subject_of(const ith_tile_case *c, char subject[ITH_WISDOM_SUBJECT_BYTES])
{
    snprintf(subject, ITH_WISDOM_SUBJECT_BYTES, "tiles %s %s head_dim=%lld softmax=%s keys=%lld", c->kernel,
             ith_dtype_name(c->dtype), (long long)c->head_dim, ith_softmax_name(c->softmax),
             (long long)ith_tile_class(c->keys));
}

static ith_attn_tiles tiles_of(const ith_wisdom_entry *entry)
{
    ith_attn_tiles tiles = {0};
    for (int i = 0; i < ITH_TILES; i++)
        *ith_tile_at(&tiles, i) = ith_wisdom_value(entry, ith_tile_name(i));
    return tiles;
}

bool ith_tile_wisdom_find(const ith_wisdom *wisdom, const ith_tile_case *wanted, ith_attn_tiles *tiles)
{
    char subject[ITH_WISDOM_SUBJECT_BYTES], why[256];
    subject_of(wanted, subject);
    const ith_wisdom_entry *entry = ith_wisdom_find(wisdom, subject);
    bool known = entry && ith_tile_wisdom_is_legal(entry, why, sizeof why);
    *tiles = known ? tiles_of(entry) : (ith_attn_tiles){0};
    return known;
}

void ith_tile_wisdom_put(ith_wisdom *wisdom, const ith_tile_case *measured, const ith_attn_tiles *tiles, double gflops,
                         double usual_gflops)
{
    ith_wisdom_entry entry = {.own = true};
    ith_attn_tiles sizes = *tiles;
    subject_of(measured, entry.subject);
    for (int i = 0; i < ITH_TILES; i++)
        ith_wisdom_add(&entry, ith_tile_name(i), (double)*ith_tile_at(&sizes, i));
    ith_wisdom_add(&entry, "rate", 1e3 * gflops);
    ith_wisdom_add(&entry, "usual_rate", 1e3 * usual_gflops);
    ith_wisdom_put(wisdom, &entry);
}

bool ith_tile_wisdom_is_legal(const ith_wisdom_entry *entry, char *sentence, size_t bytes)
{
    char name[ITH_ATTN_NAME_BYTES];
    int64_t head_dim;
    if (sscanf(entry->subject, "tiles %47s %*s head_dim=%" SCNd64, name, &head_dim) != 2)
        return true;
    const ith_attn_kernel *kernel = ith_attn_kernel_named(name);
    if (!kernel)
        return true;
    if (head_dim < 1 || head_dim > ITH_ATTN_HEAD_DIM_MAX) {
        snprintf(sentence, bytes, "head_dim is %lld, and must be from 1 to %d", (long long)head_dim,
                 ITH_ATTN_HEAD_DIM_MAX);
        return false;
    }
    const ith_attn_tiles tiles = tiles_of(entry);
    return ith_tiles_check(kernel, head_dim, &tiles, sentence, bytes);
}
