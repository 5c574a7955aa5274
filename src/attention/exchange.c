/* Lists of blocks for the two exchanges; the memory between them. */
#include "exchange.h"

#include "../base/size.h"
#include "sweep.h"

/* A rank of the ulysses axis: which rows it has, which problems it gets. */
typedef struct member {
    int64_t q_begin, q_rows, kv_begin, kv_rows; /* begin: within what the axis holds together */
    int64_t first[2], count[2];                 /* query problems, key problems */
} member;

struct ith_exchange {
    const ith_attn_setting *setting;
    int ranks, rank;
    member *members;
    ith_exchanged result;
    ith_transfer *sends, *receives;
    int send_count, receive_count;
};

static void describe_members(ith_exchange *e)
{
    const ith_attn_setting *s = e->setting;
    const ith_attn_problem *p = &s->problem;
    int all = s->ulysses * s->ring, first_rank = s->ring_index * s->ulysses;
    int64_t q_origin, kv_origin, rows;
    ith_share(p->q_len, all, first_rank, &q_origin, &rows);
    ith_share(p->kv_len, all, first_rank, &kv_origin, &rows);
    for (int u = 0; u < e->ranks; u++) {
        member *m = &e->members[u];
        ith_share(p->q_len, all, first_rank + u, &m->q_begin, &m->q_rows);
        ith_share(p->kv_len, all, first_rank + u, &m->kv_begin, &m->kv_rows);
        m->q_begin -= q_origin;
        m->kv_begin -= kv_origin;
        ith_share(p->batch * p->heads, e->ranks, u, &m->first[0], &m->count[0]);
        ith_key_problems(p, m->first[0], m->count[0], &m->first[1], &m->count[1]);
    }
}

/* rows x problems heads, as a buffer of the exchange's own. */
static bool make_buffer(const ith_attn_setting *s, int64_t rows, int64_t problems, const char *what, ith_rows *out)
{
    *out = ith_rows_in_buffer(s, ith_alloc(s->context, rows * problems, s->problem.head_dim * s->element_bytes, what),
                              problems);
    return out->data != NULL;
}

static ith_status make_buffers(ith_exchange *e)
{
    const ith_attn_setting *s = e->setting;
    const member *own = &e->members[e->rank];
    ith_exchanged *r = &e->result;
    int64_t begin, blocks = 0;
    int all = s->ulysses * s->ring;
    *r = (ith_exchanged){.first_problem = own->first[0],
                         .problems = own->count[0],
                         .first_keys = own->first[1],
                         .keys_count = own->count[1]};
    ith_stretch(s->problem.q_len, all, s->ring_index * s->ulysses, s->ulysses, &begin, &r->q_rows);
    ith_stretch(s->problem.kv_len, all, s->ring_index * s->ulysses, s->ulysses, &begin, &r->kv_rows);
    if (!make_buffer(s, r->q_rows, r->problems, "exchanged queries", &r->q) ||
        !make_buffer(s, r->kv_rows, r->keys_count, "exchanged keys", &r->k) ||
        !make_buffer(s, r->kv_rows, r->keys_count, "exchanged values", &r->v) ||
        !make_buffer(s, r->q_rows, r->problems, "exchanged outputs", &r->o))
        return ITH_ERR_MEMORY;
    r->lse = ith_alloc(s->context, r->q_rows * r->problems, sizeof *r->lse, "exchanged lse");
    /* Each of three tensors goes to each rank in at most a block per batch entry; on the way back lse takes a tensor's
     * place. */
    if (!ith_size_mul(s->problem.batch, 3 * (int64_t)e->ranks, &blocks) || blocks > INT32_MAX)
        return ith_fail(s->context, ITH_ERR_ARGUMENT, "batch is %lld: more than can be exchanged between %d ranks",
                        (long long)s->problem.batch, e->ranks);
    e->sends = ith_alloc(s->context, blocks, sizeof *e->sends, "the blocks of an exchange");
    e->receives = ith_alloc(s->context, blocks, sizeof *e->receives, "the blocks of an exchange");
    return r->lse && e->sends && e->receives ? ITH_OK : ITH_ERR_MEMORY;
}

ith_status ith_exchange_create(const ith_attn_setting *setting, ith_exchange **out)
{
    *out = NULL;
    ith_exchange *e = ith_alloc_zero(setting->context, 1, sizeof *e, "an exchange");
    if (!e)
        return ITH_ERR_MEMORY;
    ith_status status = ITH_ERR_MEMORY;
    e->setting = setting;
    e->ranks = setting->ulysses;
    e->rank = setting->ulysses_index;
    e->members = ith_alloc_zero(setting->context, e->ranks, sizeof *e->members, "an exchange");
    if (e->members) {
        describe_members(e);
        status = make_buffers(e);
    }
    if (status)
        ith_exchange_destroy(&e);
    *out = e;
    return status;
}

void ith_exchange_destroy(ith_exchange **exchange)
{
    ith_exchange *e = *exchange;
    if (!e)
        return;
    ith_context *context = e->setting->context;
    ith_free(context, e->result.q.data);
    ith_free(context, e->result.k.data);
    ith_free(context, e->result.v.data);
    ith_free(context, e->result.o.data);
    ith_free(context, e->result.lse);
    ith_free(context, e->sends);
    ith_free(context, e->receives);
    ith_free(context, e->members);
    ith_free(context, e);
    *exchange = NULL;
}

const ith_exchanged *ith_exchange_result(const ith_exchange *exchange)
{
    return &exchange->result;
}

/* Some rows of problems [first, first + count). */
typedef struct range {
    ith_rows rows;
    int64_t base;                    /* the number of the problem that `rows` calls 0 */
    int64_t row, row_count;          /* which rows */
    int64_t first, count, per_entry; /* per_entry: problems of a batch entry */
} range;

/* Lists a range: a block for every batch entry that it touches, so that both ends cut it alike. */
static void list_blocks(const ith_exchange *e, ith_transfer *list, int *listed, int peer, const range *r)
{
    const ith_attn_setting *s = e->setting;
    int64_t end = r->first + r->count, dim = s->problem.head_dim;
    for (int64_t n = r->first; n < end;) {
        int64_t next = ith_min64((n / r->per_entry + 1) * r->per_entry, end), local = n - r->base;
        int64_t element =
            local / r->rows.heads * r->rows.batch_stride + r->row * r->rows.row_stride + local % r->rows.heads * dim;
        list[(*listed)++] = (ith_transfer){
            .peer = peer,
            .block = {.data = ith_element_at(s, r->rows.data, element),
                      .count = {r->row_count, 1},
                      .stride = {r->rows.row_stride * s->element_bytes, 0},
                      .bytes = (next - n) * dim * s->element_bytes},
        };
        n = next;
    }
}

/* Rank `peer`'s rows of this rank's problems, in this rank's buffer. */
static range buffered(const ith_exchange *e, int peer, ith_rows buffer, bool keys)
{
    const ith_attn_problem *p = &e->setting->problem;
    const member *own = &e->members[e->rank], *other = &e->members[peer];
    return (range){.rows = buffer,
                   .base = own->first[keys],
                   .row = keys ? other->kv_begin : other->q_begin,
                   .row_count = keys ? other->kv_rows : other->q_rows,
                   .first = own->first[keys],
                   .count = own->count[keys],
                   .per_entry = keys ? p->kv_heads : p->heads};
}

/* This rank's rows of rank `peer`'s problems, in the caller's tensor. */
static range callers(const ith_exchange *e, int peer, ith_rows tensor, bool keys)
{
    const member *own = &e->members[e->rank], *other = &e->members[peer];
    return (range){.rows = tensor,
                   .row_count = keys ? own->kv_rows : own->q_rows,
                   .first = other->first[keys],
                   .count = other->count[keys],
                   .per_entry = tensor.heads};
}

ith_status ith_exchange_in(ith_exchange *e, const ith_attn_tensors *tensors)
{
    const ith_rows buffers[] = {e->result.q, e->result.k, e->result.v};
    e->send_count = e->receive_count = 0;
    for (int which = ITH_TENSOR_Q; which <= ITH_TENSOR_V; which++) {
        ith_rows tensor = ith_rows_of(e->setting, (ith_attn_tensor)which, tensors);
        for (int peer = 0; peer < e->ranks; peer++) {
            range out = callers(e, peer, tensor, which != ITH_TENSOR_Q);
            range in = buffered(e, peer, buffers[which], which != ITH_TENSOR_Q);
            list_blocks(e, e->sends, &e->send_count, peer, &out);
            list_blocks(e, e->receives, &e->receive_count, peer, &in);
        }
    }
    return ith_comm_exchange(e->setting->ulysses_comm, e->sends, e->send_count, e->receives, e->receive_count);
}

/* The lse of rank `peer`'s rows goes there; this rank's rows of the peer's problems come back as one block, since
 * [B, H, rows] is the list of problems. */
static void list_lse(ith_exchange *e, int peer, float *lse)
{
    const member *own = &e->members[e->rank], *other = &e->members[peer];
    int64_t size = sizeof *lse;
    e->sends[e->send_count++] = (ith_transfer){
        .peer = peer,
        .block = {.data = e->result.lse + other->q_begin,
                  .count = {own->count[0], 1},
                  .stride = {e->result.q_rows * size, 0},
                  .bytes = other->q_rows * size},
    };
    e->receives[e->receive_count++] = (ith_transfer){
        .peer = peer,
        .block = {.data = lse + other->first[0] * own->q_rows,
                  .count = {1, 1},
                  .bytes = other->count[0] * own->q_rows * size},
    };
}

ith_status ith_exchange_out(ith_exchange *e, const ith_attn_tensors *tensors)
{
    ith_rows tensor = ith_rows_of(e->setting, ITH_TENSOR_O, tensors);
    e->send_count = e->receive_count = 0;
    for (int peer = 0; peer < e->ranks; peer++) {
        range out = buffered(e, peer, e->result.o, false), in = callers(e, peer, tensor, false);
        list_blocks(e, e->sends, &e->send_count, peer, &out);
        list_blocks(e, e->receives, &e->receive_count, peer, &in);
        if (tensors->lse)
            list_lse(e, peer, tensors->lse);
    }
    ith_status status =
        ith_comm_exchange(e->setting->ulysses_comm, e->sends, e->send_count, e->receives, e->receive_count);
    if (status == ITH_ERR_ARGUMENT && e->setting->ulysses_comm)
        ith_fail_in(e->setting->ulysses_comm->context, status, "lse must be given on every rank or on none");
    return status;
}

int64_t ith_exchange_sent_bytes(const ith_exchange *e)
{
    const member *own = &e->members[e->rank];
    int64_t heads = 0;
    for (int peer = 0; peer < e->ranks; peer++)
        if (peer != e->rank)
            heads += own->q_rows * e->members[peer].count[0] + 2 * own->kv_rows * e->members[peer].count[1] +
                     e->members[peer].q_rows * own->count[0];
    return heads * e->setting->problem.head_dim * e->setting->element_bytes;
}
