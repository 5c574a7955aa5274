/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 says what it was asked for, the others compare. */
#include "agree.h"

#include "../base/dtype.h"
#include "options.h"

#include <stdio.h>
#include <string.h>

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

/* ---- Requests -------------------------------------------------------------------------------------------------- */

#define PARAMETERS 32 /* at most */

typedef enum value_kind { NUMBER, SCALE, DTYPE, STRATEGY, DIRECTION, SOFTMAX, EXCHANGE, CHOICE, EFFORT } value_kind;

/* What ranks may not differ in. */
typedef struct request_card {
    int64_t values[PARAMETERS];
    char kernel[64]; /* empty: to be chosen */
} request_card;

typedef struct request {
    int count;
    struct {
        const char *name;
        value_kind kind;
    } rows[PARAMETERS];
    request_card card; /* what travels */
} request;

static void add(request *r, const char *name, value_kind kind, int64_t value)
{
    r->rows[r->count].name = name;
    r->rows[r->count].kind = kind;
    r->card.values[r->count++] = value;
}

static void add_problem(request *r, const ith_attn_problem *p)
{
    add(r, "batch", NUMBER, p->batch);
    add(r, "heads", NUMBER, p->heads);
    add(r, "kv_heads", NUMBER, p->kv_heads);
    add(r, "head_dim", NUMBER, p->head_dim);
    add(r, "q_len", NUMBER, p->q_len);
    add(r, "kv_len", NUMBER, p->kv_len);
    add(r, "dtype", DTYPE, p->dtype);
    add(r, "scale", SCALE, ith_f32_bits(p->scale));
    add(r, "has_kv_lengths", NUMBER, p->has_kv_lengths);
    add(r, "has_key_bias", NUMBER, p->has_key_bias);
    add(r, "mask", NUMBER, p->mask);
    add(r, "mask_batch", NUMBER, p->mask_batch);
    add(r, "mask_heads", NUMBER, p->mask_heads);
    add(r, "replicated_kv", NUMBER, p->replicated_kv);
}

static void add_options(request *r, const ith_attn_options *o)
{
    ith_attn_tiles tiles = ith_tiles_asked(o);
    add(r, "strategy", STRATEGY, o->strategy);
    add(r, "ulysses", NUMBER, o->ulysses);
    add(r, "ring", NUMBER, o->ring);
    add(r, "direction", DIRECTION, o->direction);
    add(r, "chunks", NUMBER, o->chunks);
    add(r, "fold", CHOICE, o->fold);
    add(r, "softmax", SOFTMAX, o->softmax);
    add(r, "smooth", CHOICE, o->smooth);
    add(r, "exchange", EXCHANGE, o->exchange);
    add(r, "effort", EFFORT, o->effort);
    for (int i = 0; i < ITH_TILES; i++)
        add(r, ith_tile_name(i), NUMBER, *ith_tile_at(&tiles, i));
    snprintf(r->card.kernel, sizeof r->card.kernel, "%s", o->kernel ? o->kernel : "");
}

static void describe(value_kind kind, int64_t value, char *text, size_t text_bytes)
{
    const char *name = NULL;
    switch (kind) {
    case DTYPE: name = ith_dtype_name((ith_dtype)value); break;
    case STRATEGY: name = ith_strategy_name((ith_strategy)value); break;
    case DIRECTION: name = ith_direction_name((ith_direction)value); break;
    case SOFTMAX: name = ith_softmax_name((ith_softmax)value); break;
    case EFFORT: name = ith_effort_name((ith_effort)value); break;
    case EXCHANGE: name = ith_exchange_mode_name((ith_exchange_mode)value); break;
    case CHOICE: name = ith_choice_name((ith_choice)value); break;
    case SCALE: snprintf(text, text_bytes, "%g", (double)ith_f32_from_bits((uint32_t)value)); return;
    case NUMBER: break;
    }
    if (name)
        snprintf(text, text_bytes, "%s", name);
    else
        snprintf(text, text_bytes, "%lld", (long long)value);
}

static ith_status compare(ith_comm *comm, const request *mine, const request_card *first)
{
    char here[64], there[64];
    for (int i = 0; i < mine->count; i++) {
        if (mine->card.values[i] == first->values[i])
            continue;
        describe(mine->rows[i].kind, mine->card.values[i], here, sizeof here);
        describe(mine->rows[i].kind, first->values[i], there, sizeof there);
        return ith_fail(comm->context, ITH_ERR_ARGUMENT,
                        "%s is %s on rank %d and %s on rank 0: every rank must ask for the same", mine->rows[i].name,
                        here, comm->rank, there);
    }
    if (strcmp(mine->card.kernel, first->kernel))
        return ith_fail(comm->context, ITH_ERR_ARGUMENT,
                        "kernel is %s on rank %d and %s on rank 0: every rank must name the same, or none",
                        mine->card.kernel[0] ? mine->card.kernel : "NULL", comm->rank,
                        first->kernel[0] ? first->kernel : "NULL");
    return ITH_OK;
}

ith_status ith_agree_on_request(ith_comm *comm, const ith_attn_setting *setting, const ith_attn_options *options)
{
    if (!comm)
        return ITH_OK;
    request mine = {0};
    add_problem(&mine, &setting->problem);
    add_options(&mine, options);
    request_card first = mine.card;
    ith_status status = ith_comm_broadcast(comm, &first, sizeof first, 0);
    if (!status)
        status = ith_comm_agree(comm, compare(comm, &mine, &first));
    return ith_pass_on(setting->context, comm, status);
}
