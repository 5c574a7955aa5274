/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement of ranks (agree.h). For requests, rank 0 broadcasts its own and the other ranks compare theirs with it. */
#include "agree.h"

#include "../base/hash.h"
#include "../base/plain_text.h"
#include "tile_sizes.h"

#include <stdio.h>
#include <string.h>

/* ith_comm_agree sends the error sentence of the communicator's context, so this rank's error sentence is copied there
 * first. */
ith_status ith_agree(ith_context *context, ith_comm *comm, ith_status mine)
{
    if (!comm)
        return mine;
    if (mine && comm->context != context)
        ith_fail(comm->context, mine, "%s", ith_context_error(context));
    return ith_pass_on(context, comm, ith_comm_agree(comm, mine));
}

ith_status ith_pass_on(ith_context *context, ith_comm *comm, ith_status status)
{
    if (status && comm && comm->context != context)
        ith_fail(context, status, "%s", ith_context_error(comm->context));
    return status;
}

/* Fails if rank 0's decision has arrived changed. hash: of the data that rank 0 has sent. */
static ith_status check_decision(ith_context *context, ith_comm *comm, uint64_t hash, const void *data, int64_t bytes)
{
    char name[ITH_RANK_NAME];
    if (hash == ith_hash(0, data, bytes))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_INTERNAL, "the transport %s has changed a decision of rank 0 on its way to %s",
                    comm->transport.name, ith_comm_name_rank(comm, comm->rank, name));
}

/* If rank 0 has failed, it sends data that no rank uses. */
ith_status ith_agree_with_first(ith_context *context, ith_comm *comm, ith_status mine, void *data, int64_t bytes)
{
    if (!comm)
        return mine;
    uint64_t hash = ith_hash(0, data, bytes);
    ith_status status = ith_comm_broadcast(comm, &hash, sizeof hash, 0);
    if (!status)
        status = ith_comm_broadcast(comm, data, bytes, 0);
    if (status)
        return ith_pass_on(context, comm, status);
    return ith_agree(context, comm, mine ? mine : check_decision(context, comm, hash, data, bytes));
}

/* ---- Requests -------------------------------------------------------------------------------------------------- */

enum { PARAMETERS = 40, VALUE_BYTES = 64 };

/* A request as text: the parameters that must be equal on all ranks, by name, with their values. */
typedef struct request {
    int count;
    const char *names[PARAMETERS];
    char values[PARAMETERS][VALUE_BYTES];
} request;

static void add_text(request *r, const char *name, const char *value)
{
    r->names[r->count] = name;
    snprintf(r->values[r->count++], VALUE_BYTES, "%s", value);
}

static void add(request *r, const char *name, int64_t value)
{
    char text[VALUE_BYTES];
    snprintf(text, sizeof text, "%lld", (long long)value);
    add_text(r, name, text);
}

/* Strides are left out: every rank may choose its own layout in memory. */
static void add_problem(request *r, const ith_attn_problem *p)
{
    char scale[VALUE_BYTES];
    ith_number_print((double)p->scale, 9, scale, sizeof scale); /* 9 digits distinguish all floats */
    add(r, "batch", p->batch);
    add(r, "heads", p->heads);
    add(r, "kv_heads", p->kv_heads);
    add(r, "head_dim", p->head_dim);
    add(r, "q_len", p->q_len);
    add(r, "kv_len", p->kv_len);
    add_text(r, "dtype", ith_dtype_name(p->dtype));
    add_text(r, "scale", scale);
    add(r, "has_kv_lengths", p->has_kv_lengths);
    add(r, "has_key_bias", p->has_key_bias);
    add(r, "mask", p->mask);
    add(r, "mask_batch", p->mask_batch);
    add(r, "mask_heads", p->mask_heads);
    add(r, "replicated_kv", p->replicated_kv);
}

static void add_options(request *r, const ith_attn_options *o)
{
    ith_attn_tiles tiles = ith_tiles_asked(o);
    add_text(r, "strategy", ith_strategy_name(o->strategy));
    add(r, "ulysses", o->ulysses);
    add(r, "ring", o->ring);
    add_text(r, "direction", ith_direction_name(o->direction));
    add(r, "chunks", o->chunks);
    add_text(r, "fold", ith_choice_name(o->fold));
    add_text(r, "softmax", ith_softmax_name(o->softmax));
    add_text(r, "smooth", ith_choice_name(o->smooth));
    add_text(r, "exchange", ith_exchange_mode_name(o->exchange));
    add_text(r, "compress", ith_compress_name(o->compress));
    add_text(r, "overlap", ith_choice_name((ith_choice)o->overlap));
    add_text(r, "effort", ith_effort_name(o->effort));
    for (int i = 0; i < ITH_TILES; i++)
        add(r, ith_tile_name(i), *ith_tile_at(&tiles, i));
    add_text(r, "kernel", o->kernel ? o->kernel : "NULL");
}

/* Compares this rank's request with the values of rank 0 (`first`). */
static ith_status compare(ith_comm *comm, const request *mine, char first[PARAMETERS][VALUE_BYTES])
{
    char self[ITH_RANK_NAME], other[ITH_RANK_NAME];
    for (int i = 0; i < mine->count; i++)
        if (strcmp(mine->values[i], first[i]))
            return ith_fail(comm->context, ITH_ERR_ARGUMENT,
                            "%s is %s on %s and %s on %s: every rank must ask for the same", mine->names[i],
                            mine->values[i], ith_comm_name_rank(comm, comm->rank, self), first[i],
                            ith_comm_name_rank(comm, 0, other));
    return ITH_OK;
}

/* Values are sent as text, so that an error sentence can show rank 0's value, whatever its type. */
ith_status ith_agree_on_request(ith_comm *comm, const ith_attn_setting *setting, const ith_attn_options *options)
{
    if (!comm)
        return ITH_OK;
    request mine = {0};
    char first[PARAMETERS][VALUE_BYTES];
    add_problem(&mine, &setting->problem);
    add_text(&mine, "device", setting->device ? setting->device->module->head.name : "cpu");
    add_options(&mine, options);
    memcpy(first, mine.values, sizeof first);
    ith_status status = ith_comm_broadcast(comm, first, sizeof first, 0);
    for (int i = 0; i < PARAMETERS; i++)
        first[i][VALUE_BYTES - 1] = '\0'; /* also if a transport has brought other bytes */
    if (!status)
        status = ith_comm_agree(comm, compare(comm, &mine, first));
    return ith_pass_on(setting->context, comm, status);
}
