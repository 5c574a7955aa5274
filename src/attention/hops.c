/* Ring attention (arXiv:2310.01889), in one direction. */
#include "hops.h"

#include "../base/size.h"

struct ith_hops {
    const ith_attn_setting *setting;
    int ranks, rank;
    int64_t keys_count, heads; /* heads: key problems side by side in a row of a travelling shard */
    int64_t *begins, *rows;    /* of every rank's shard */
    int64_t most_keys;
    void *buffers[2][2]; /* shards on their way: [hop parity][k, v] */
    ith_transfer sends[2], receives[2];
};

ith_status ith_hops_create(const ith_attn_setting *setting, int64_t keys_count, int64_t heads, ith_hops **out)
{
    *out = NULL;
    ith_context *context = setting->context;
    ith_hops *h = ith_alloc_zero(context, 1, sizeof *h, "a ring");
    if (!h)
        return ITH_ERR_MEMORY;
    h->setting = setting;
    h->ranks = setting->ring;
    h->rank = setting->ring_index;
    h->keys_count = keys_count;
    h->heads = ith_max64(heads, 1);
    h->begins = ith_alloc_zero(context, h->ranks, sizeof *h->begins, "a ring");
    h->rows = ith_alloc_zero(context, h->ranks, sizeof *h->rows, "a ring");
    if (!h->begins || !h->rows)
        goto fail;
    for (int r = 0; r < h->ranks; r++) {
        ith_stretch(setting->problem.kv_len, h->ranks * setting->ulysses, r * setting->ulysses, setting->ulysses,
                    &h->begins[r], &h->rows[r]);
        h->most_keys = ith_max64(h->most_keys, h->rows[r]);
    }
    int64_t head_bytes = setting->problem.head_dim * setting->element_bytes;
    for (int i = 0; i < ith_min64(h->ranks - 1, 2); i++)
        for (int which = 0; which < 2; which++) {
            h->buffers[i][which] = ith_alloc(context, h->most_keys * keys_count, head_bytes, "a shard on its way");
            if (!h->buffers[i][which])
                goto fail;
        }
    *out = h;
    return ITH_OK;
fail:
    ith_hops_destroy(&h);
    return ITH_ERR_MEMORY;
}

void ith_hops_destroy(ith_hops **hops)
{
    ith_hops *h = *hops;
    if (!h)
        return;
    ith_context *context = h->setting->context;
    for (int i = 0; i < 2; i++)
        for (int which = 0; which < 2; which++)
            ith_free(context, h->buffers[i][which]);
    ith_free(context, h->begins);
    ith_free(context, h->rows);
    ith_free(context, h);
    *hops = NULL;
}

int64_t ith_hops_most_keys(const ith_hops *hops)
{
    return hops->most_keys;
}

int64_t ith_hops_sent_bytes(const ith_hops *h)
{
    int64_t rows = 0;
    for (int hop = 0; hop < h->ranks - 1; hop++)
        rows += h->rows[(h->rank - hop + h->ranks) % h->ranks];
    return 2 * rows * h->keys_count * h->setting->problem.head_dim * h->setting->element_bytes;
}

static ith_block shard_block(const ith_hops *h, const ith_rows *rows, int64_t count)
{
    int64_t bytes = h->setting->element_bytes;
    return (ith_block){.data = rows->data,
                       .count = {h->keys_count / h->heads, count},
                       .stride = {rows->batch_stride * bytes, rows->row_stride * bytes},
                       .bytes = h->heads * h->setting->problem.head_dim * bytes};
}

/* A shard of `rows` rows in a buffer, as its first owner has it but contiguous. */
static ith_rows in_buffer(const ith_hops *h, void *buffer, int64_t rows)
{
    int64_t width = h->heads * h->setting->problem.head_dim;
    return (ith_rows){.data = buffer, .heads = h->heads, .row_stride = width, .batch_stride = rows * width};
}

/* Posts the sending of the shard at hand and the receiving of the next. */
static ith_status post_hop(ith_hops *h, const ith_shard *now, const ith_shard *next, ith_request **request)
{
    int to = (h->rank + 1) % h->ranks, from = (h->rank + h->ranks - 1) % h->ranks;
    h->sends[0] = (ith_transfer){to, shard_block(h, &now->k, now->keys)};
    h->sends[1] = (ith_transfer){to, shard_block(h, &now->v, now->keys)};
    h->receives[0] = (ith_transfer){from, shard_block(h, &next->k, next->keys)};
    h->receives[1] = (ith_transfer){from, shard_block(h, &next->v, next->keys)};
    ith_comm *comm = h->setting->ring_comm;
    return comm->ops->exchange(comm, h->sends, 2, h->receives, 2, request);
}

ith_status ith_hops_run(ith_hops *h, ith_sweep *sweep, const ith_shard *own)
{
    ith_shard now = *own;
    for (int hop = 0; hop < h->ranks; hop++) {
        int source = (h->rank - hop + h->ranks) % h->ranks, following = (source + h->ranks - 1) % h->ranks;
        ith_shard next = now;
        ith_request *request = NULL;
        now.first = hop == 0;
        now.last = hop == h->ranks - 1;
        now.keys = h->rows[source];
        now.key_bias = own->key_bias ? own->key_bias + h->begins[source] : NULL;
        if (!now.last) {
            next.keys = h->rows[following];
            next.k = in_buffer(h, h->buffers[hop % 2][0], next.keys);
            next.v = in_buffer(h, h->buffers[hop % 2][1], next.keys);
            ith_status status = post_hop(h, &now, &next, &request);
            if (status)
                return status;
        }
        ith_sweep_run(sweep, &now);
        if (request) {
            ith_status status = h->setting->ring_comm->ops->wait(h->setting->ring_comm, &request);
            if (status)
                return status;
        }
        now = next;
    }
    return ITH_OK;
}
