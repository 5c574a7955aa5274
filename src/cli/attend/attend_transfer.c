/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the tensors of a problem to other processes and brings results back, by one exchange each (attend_transfer.h).
 */
#include "attend_transfer.h"

#include "../launch/launch.h"

#include <ithaca/transport.h>

#include <stdlib.h>

#define TRANSFERS_MAX 6 /* the most transfers with one rank: q, k, v, kv_lengths, key_bias, mask */

/* The transfers of this rank in one exchange: all sends, or all receives. */
typedef struct transfer_list {
    ith_transfer *items;
    int64_t count;
} transfer_list;

/* Adds a transfer of `runs` runs of `bytes` bytes each. */
static void add(transfer_list *list, int peer, const void *data, int64_t runs, int64_t stride, int64_t bytes)
{
    list->items[list->count++] =
        (ith_transfer){peer, {.data = (void *)data, .count = {runs, 1}, .stride = {stride, 0}, .bytes = bytes}};
}

/* Adds q, k and v of a rank. */
static void add_inputs(transfer_list *list, int peer, const ith_attend_whole *whole, int ranks, int rank)
{
    const ith_attn_problem *p = &whole->problem;
    const ith_attn_tensors share = ith_attend_share(whole, ranks, rank);
    int64_t size = ith_dtype_bytes(p->dtype), begin, q_rows, kv_rows;
    ith_share(p->q_len, ranks, rank, &begin, &q_rows);
    ith_share(p->kv_len, ranks, rank, &begin, &kv_rows);
    add(list, peer, share.q, p->batch, p->q_batch_stride * size, q_rows * p->q_row_stride * size);
    add(list, peer, share.k, p->batch, p->k_batch_stride * size, kv_rows * p->k_row_stride * size);
    add(list, peer, share.v, p->batch, p->v_batch_stride * size, kv_rows * p->v_row_stride * size);
}

/* The bytes of kv_lengths and key_bias; 0 for a tensor that the problem does not have. */
static int64_t lengths_bytes(const ith_attn_problem *p)
{
    return p->has_kv_lengths ? p->batch * (int64_t)sizeof(int32_t) : 0;
}

static int64_t bias_bytes(const ith_attn_problem *p)
{
    return p->has_key_bias ? p->batch * p->kv_len * (int64_t)sizeof(float) : 0;
}

/* Adds the tensors of which every process holds all elements. */
static void add_masks(transfer_list *list, int peer, const ith_attend_whole *whole)
{
    add(list, peer, whole->tensors.kv_lengths, 1, 0, lengths_bytes(&whole->problem));
    add(list, peer, whole->tensors.key_bias, 1, 0, bias_bytes(&whole->problem));
    add(list, peer, whole->tensors.mask, 1, 0, ith_attend_mask_bytes(&whole->problem));
}

/* Adds o and lse of a rank. */
static void add_results(transfer_list *list, int peer, const ith_attend_whole *whole, int ranks, int rank)
{
    const ith_attn_problem *p = &whole->problem;
    const ith_attn_tensors share = ith_attend_share(whole, ranks, rank);
    int64_t size = ith_dtype_bytes(p->dtype), begin, rows;
    ith_share(p->q_len, ranks, rank, &begin, &rows);
    add(list, peer, share.o, p->batch, p->o_batch_stride * size, rows * p->o_row_stride * size);
    add(list, peer, share.lse, 1, 0, p->batch * p->heads * rows * (int64_t)sizeof(float));
}

static int64_t process_of(const ith_comm *comm, int rank)
{
    ith_place place = ITH_PLACE_INIT;
    ith_comm_place(comm, rank, &place);
    return place.process;
}

/* Whether a rank needs transfers: it does not share the memory of rank 0. */
static bool is_away(const ith_comm *comm, int rank)
{
    return process_of(comm, rank) != process_of(comm, 0);
}

/* Ranks of a process follow one another, so the last rank of all is elsewhere if any is. */
static bool is_one_process(const ith_comm *comm)
{
    return !is_away(comm, ith_comm_size(comm) - 1);
}

/* Allocates the tensors of whole->problem. Pages that are never touched take no memory. */
static bool make_tensors(ith_attend_whole *whole)
{
    const ith_attn_problem *p = &whole->problem;
    ith_attn_tensors *t = &whole->tensors;
    int64_t size = ith_dtype_bytes(p->dtype);
    *t = (ith_attn_tensors){.struct_size = sizeof *t};
    t->q = ith_attend_own(whole, p->batch * p->q_batch_stride * size);
    t->k = ith_attend_own(whole, p->batch * p->k_batch_stride * size);
    t->v = ith_attend_own(whole, p->batch * p->v_batch_stride * size);
    t->kv_lengths = p->has_kv_lengths ? ith_attend_own(whole, lengths_bytes(p)) : NULL;
    t->key_bias = p->has_key_bias ? ith_attend_own(whole, bias_bytes(p)) : NULL;
    t->mask = p->mask ? ith_attend_own(whole, ith_attend_mask_bytes(p)) : NULL;
    return t->q && t->k && t->v && (!p->has_kv_lengths || t->kv_lengths) && (!p->has_key_bias || t->key_bias) &&
           (!p->mask || t->mask) && ith_attend_own_results(whole);
}

/* Gives every process the problem and its tensors. */
static ith_status spread_problem(ith_attend_whole *whole, ith_comm *comm)
{
    int rank = ith_comm_rank(comm);
    ith_attn_problem problem = whole->problem;
    ith_status status = ith_comm_broadcast(comm, &problem, sizeof problem, 0);
    if (!status && is_away(comm, rank) && ith_launch_is_first(comm, rank)) {
        whole->problem = problem;
        status = make_tensors(whole) ? ITH_OK : ith_launch_fail(comm, ITH_ERR_MEMORY);
    }
    return status ? status : ith_comm_barrier(comm); /* other ranks of the process may read it now */
}

ith_status ith_attend_scatter(ith_attend_whole *whole, ith_comm *comm)
{
    int rank = ith_comm_rank(comm), ranks = ith_comm_size(comm);
    if (is_one_process(comm))
        return ITH_OK;
    transfer_list list = {calloc((size_t)ranks * TRANSFERS_MAX, sizeof(ith_transfer)), 0};
    ith_status status = list.items ? spread_problem(whole, comm) : ith_launch_fail(comm, ITH_ERR_MEMORY);
    for (int other = 0; !status && other < ranks; other++) {
        if (!is_away(comm, other) || (rank != 0 && rank != other))
            continue;
        int peer = rank ? 0 : other;
        add_inputs(&list, peer, whole, ranks, other);
        if (ith_launch_is_first(comm, other))
            add_masks(&list, peer, whole);
    }
    if (!status)
        status = ith_comm_exchange(comm, rank ? NULL : list.items, rank ? 0 : list.count, rank ? list.items : NULL,
                                   rank ? list.count : 0);
    free(list.items);
    return status ? status : ith_comm_barrier(comm);
}

ith_status ith_attend_gather(const ith_attend_whole *whole, ith_comm *comm)
{
    int rank = ith_comm_rank(comm), ranks = ith_comm_size(comm);
    if (is_one_process(comm))
        return ITH_OK;
    transfer_list list = {calloc((size_t)ranks * TRANSFERS_MAX, sizeof(ith_transfer)), 0};
    if (!list.items)
        return ith_launch_fail(comm, ITH_ERR_MEMORY);
    for (int other = 0; other < ranks; other++)
        if (is_away(comm, other) && (rank == 0 || rank == other))
            add_results(&list, rank ? 0 : other, whole, ranks, other);
    ith_status status = ith_comm_exchange(comm, rank ? list.items : NULL, rank ? list.count : 0,
                                          rank ? NULL : list.items, rank ? 0 : list.count);
    free(list.items);
    return status;
}
