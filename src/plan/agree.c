/* Rank 0 says what it was asked for, the others compare. */
#include "agree.h"

#include "../base/dtype.h"

#include <stdio.h>
#include <string.h>

#define PARAMETERS 13

static const char *const names[PARAMETERS] = {
    "batch", "heads",        "kv_heads",      "head_dim", "q_len",   "kv_len", "dtype",
    "scale", "has_key_bias", "replicated_kv", "strategy", "ulysses", "ring",
};

typedef struct request_card {
    int64_t values[PARAMETERS];
    char kernel[64];
} request_card;

static request_card card_of(const ith_attn_setting *setting, const ith_attn_options *options)
{
    const ith_attn_problem *p = &setting->problem;
    request_card card = {
        .values = {p->batch, p->heads, p->kv_heads, p->head_dim, p->q_len, p->kv_len, p->dtype, ith_f32_bits(p->scale),
                   p->has_key_bias, p->replicated_kv, options->strategy, options->ulysses, options->ring},
    };
    snprintf(card.kernel, sizeof card.kernel, "%s", setting->kernel->name);
    return card;
}

static void describe(const request_card *card, int parameter, char *text, size_t text_bytes)
{
    int64_t value = card->values[parameter];
    if (!strcmp(names[parameter], "scale"))
        snprintf(text, text_bytes, "%g", (double)ith_f32_from_bits((uint32_t)value));
    else if (!strcmp(names[parameter], "dtype"))
        snprintf(text, text_bytes, "%s", ith_dtype_name((ith_dtype)value));
    else if (!strcmp(names[parameter], "strategy"))
        snprintf(text, text_bytes, "%s", ith_strategy_name((ith_strategy)value));
    else
        snprintf(text, text_bytes, "%lld", (long long)value);
}

static ith_status compare(ith_comm *comm, const request_card *mine, const request_card *first)
{
    char here[64], there[64];
    for (int i = 0; i < PARAMETERS; i++) {
        if (mine->values[i] == first->values[i])
            continue;
        describe(mine, i, here, sizeof here);
        describe(first, i, there, sizeof there);
        return ith_fail(comm->context, ITH_ERR_ARGUMENT,
                        "%s is %s on rank %d and %s on rank 0: every rank must ask for the same", names[i], here,
                        comm->rank, there);
    }
    if (strcmp(mine->kernel, first->kernel))
        return ith_fail(comm->context, ITH_ERR_ARGUMENT,
                        "kernel is %s on rank %d and %s on rank 0: name one that every rank's machine runs",
                        mine->kernel, comm->rank, first->kernel);
    return ITH_OK;
}

ith_status ith_agree_on_problem(ith_comm *comm, const ith_attn_setting *setting, const ith_attn_options *options)
{
    if (!comm)
        return ITH_OK;
    request_card mine = card_of(setting, options), first = mine;
    ith_status status = ith_comm_broadcast(comm, &first, sizeof first, 0);
    return status ? status : ith_comm_agree(comm, compare(comm, &mine, &first));
}
