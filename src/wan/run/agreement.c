/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the options of all ranks, field by field (agreement.h). */
#include "agreement.h"

#include "../../base/context.h"
#include "../../base/count.h"
#include "identity.h"
#include "run_fields.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *dtype_word(int value)
{
    return ith_dtype_name((ith_dtype)value);
}

#define AT(member) offsetof(ith_model_info, member)
static const ith_field model_fields[] = {
    {"the model's number of experts", ITH_FIELD_INT, AT(experts), NULL, false},
    {"the model's number of layers", ITH_FIELD_WHOLE, AT(layers), NULL, false},
    {"the model's number of heads", ITH_FIELD_WHOLE, AT(heads), NULL, false},
    {"the model's head_dim", ITH_FIELD_WHOLE, AT(head_dim), NULL, false},
    {"the model's ffn_dim", ITH_FIELD_WHOLE, AT(ffn_dim), NULL, false},
    {"the model's text_dim", ITH_FIELD_WHOLE, AT(text_dim), NULL, false},
    {"the model's number of text encoder layers", ITH_FIELD_WHOLE, AT(text_layers), NULL, false},
    {"the model's number of latent channels", ITH_FIELD_WHOLE, AT(latent_channels), NULL, false},
    {"the model's use of images", ITH_FIELD_WHOLE, AT(image_use), NULL, false},
    {"the model's number of images", ITH_FIELD_WHOLE, AT(least_images), NULL, false},
};
#undef AT
static const ith_field type_fields[] = {
    {"the type in which products are computed", ITH_FIELD_INT, offsetof(ith_number_types, products.multiplied),
     dtype_word, false},
};
#define FIELDS (ITH_COUNT(model_fields) + ITH_OPTION_FIELDS + ITH_COUNT(type_fields) + ITH_ATTENTION_FIELDS)

/* The data that each rank sends to all others. Every rank holds it for all ranks, so it is small. */
typedef struct record {
    uint64_t pipeline;
    int32_t lent;    /* whether rank 0's process has sent the model to this rank's process */
    int32_t threads; /* must be equal on ranks that share a pipeline */
} record;

/* The data that rank 0 sends to all others, which compare `step` and `values` with their own. */
typedef struct request {
    uint64_t run;
    int64_t dumps;          /* whether rank 0 writes a dump file */
    int64_t saves;          /* whether rank 0 saves the run */
    int64_t preview_every;  /* number of steps between two previews, 0: there are none */
    int64_t step;           /* number of steps in the saved run with which a rank begins; 0: there is none */
    int64_t values[FIELDS]; /* options and model sizes, in the order of the tables above, as 64-bit numbers */
} request;

static void read_values(int64_t **values, const ith_field *fields, int count, const void *base)
{
    for (int i = 0; i < count; i++)
        *(*values)++ = ith_field_value(&fields[i], base);
}

static void fill_request(const ith_rank *rank, uint64_t run, request *mine)
{
    int64_t *values = mine->values;
    mine->run = run;
    mine->dumps = rank->options.dump_file != NULL;
    mine->preview_every = rank->options.on_preview ? rank->options.preview_every : 0;
    mine->saves = rank->options.checkpoint_file != NULL;
    mine->step = rank->saved ? rank->saved->step : 0;
    read_values(&values, model_fields, ITH_COUNT(model_fields), &rank->pipeline->model->info);
    read_values(&values, ith_option_fields, ITH_OPTION_FIELDS, &rank->options);
    read_values(&values, type_fields, ITH_COUNT(type_fields), &rank->types);
    read_values(&values, ith_attention_fields, ITH_ATTENTION_FIELDS, &rank->parts.attention);
}

static ith_status differ(const ith_rank *rank, const ith_field *f, int64_t here, int64_t first)
{
    char theirs[64], ours[64];
    if (f->kind == ITH_FIELD_TEXT || f->kind == ITH_FIELD_IMAGE)
        return ith_fail(rank->context, ITH_ERR_ARGUMENT, "%s on rank %d and on rank 0 differ: all must be the same",
                        f->name, rank->rank);
    ith_field_print(f, first, theirs, sizeof theirs);
    ith_field_print(f, here, ours, sizeof ours);
    return ith_fail(rank->context, ITH_ERR_ARGUMENT, "%s is %s on rank %d and %s on rank 0: all must be the same",
                    f->name, ours, rank->rank, theirs);
}

static ith_status compare_fields(const ith_rank *rank, const request *mine, const request *first, int *at,
                                 const ith_field *fields, int count)
{
    for (int i = 0; i < count; i++, ++*at)
        if (mine->values[*at] != first->values[*at])
            return differ(rank, &fields[i], mine->values[*at], first->values[*at]);
    return ITH_OK;
}

/* Compares this rank's request with rank 0's. */
static ith_status compare_requests(const ith_rank *rank, const request *mine, const request *first)
{
    int at = 0;
    /* With from_latents only rank 0 works: it decodes latents from a file. No other option needs to be the same. */
    bool decodes = rank->options.from_latents;
    ith_status status = compare_fields(rank, mine, first, &at, model_fields, ITH_COUNT(model_fields));
    if (!status)
        status = compare_fields(rank, mine, first, &at, ith_option_fields, decodes ? 1 : ITH_OPTION_FIELDS);
    if (!status && !decodes)
        status = compare_fields(rank, mine, first, &at, type_fields, ITH_COUNT(type_fields));
    if (!status && !decodes)
        status = compare_fields(rank, mine, first, &at, ith_attention_fields, ITH_ATTENTION_FIELDS);
    if (!status && mine->step != first->step)
        status = ith_fail(rank->context, ITH_ERR_ARGUMENT,
                          "the saved run has done %lld steps on rank %d and %lld on rank 0: resume_file must be one "
                          "file on all ranks",
                          (long long)mine->step, rank->rank, (long long)first->step);
    return status;
}

/* Compares the threads of this rank with the threads of the lowest rank that shares its pipeline. */
static ith_status compare_threads(const ith_rank *rank, const record *all)
{
    const record *mine = &all[rank->rank];
    int first = 0;
    while (all[first].pipeline != mine->pipeline)
        first++;
    if (mine->threads == all[first].threads)
        return ITH_OK;
    return ith_fail(rank->context, ITH_ERR_ARGUMENT,
                    "threads is %d on rank %d and %d on rank %d: the threads of a process are the same on all ranks "
                    "that share its pipeline",
                    mine->threads, rank->rank, all[first].threads, first);
}

/* The host of a rank. If the transport does not know places, every process counts as a host. */
static int64_t host_of(const ith_comm *comm, int rank)
{
    if (ith_comm_shares_memory(comm)) /* one process */
        return 0;
    const ith_place place = ith_comm_place_of(comm, rank);
    return comm && comm->transport.place ? place.host : place.process;
}

/* Counts the processes and the hosts of a run, and finds the numbers of this rank's process and host. Both are numbered
 * in the order of their lowest ranks. */
static void count_processes(ith_rank *rank, const record *all)
{
    ith_team *team = &rank->team;
    team->lent = rank->pipeline->lent;
    const int64_t own_host = host_of(rank->comm, rank->rank);
    for (int i = 0; i < rank->ranks; i++) {
        const int64_t host = host_of(rank->comm, i);
        int first = 0, first_on_host = 0;
        while (all[first].pipeline != all[i].pipeline)
            first++;
        while (host_of(rank->comm, first_on_host) != host)
            first_on_host++;
        if (all[i].pipeline == all[rank->rank].pipeline && first == i)
            team->process = team->processes, team->first_on_host = first_on_host == i;
        if (host == own_host && first_on_host == i)
            team->host = team->hosts;
        team->processes += first == i;
        team->hosts += first_on_host == i;
        team->host_processes += first == i && host == own_host;
        team->host_ranks += host == own_host;
        team->lends |= all[i].lent;
    }
}

/* Finds the ranks that share this rank's pipeline, and the index of this rank among them. */
static void find_team(ith_rank *rank, const record *all, int *members)
{
    int count = 0;
    for (int i = 0; i < rank->ranks; i++) {
        if (i == rank->rank)
            rank->position = count;
        if (all[i].pipeline == all[rank->rank].pipeline)
            members[count++] = i;
    }
    rank->team = (ith_team){.ranks = rank->ranks,
                            .count = count,
                            .members = members,
                            .shares_memory = !rank->comm || ith_comm_shares_memory(rank->comm),
                            .comm = rank->comm};
    count_processes(rank, all);
}

int64_t ith_agreement_bytes(int ranks)
{
    return ranks * (int64_t)(sizeof(record) + sizeof(int)) + ITH_ALLOC_HEADER;
}

/* Compares the requests and the records of all ranks. Sets *first to rank 0's request. */
static ith_status compare(const ith_rank *rank, record *all, request *first)
{
    const record own = {rank->pipeline->number, rank->pipeline->lent, rank->options.threads};
    request mine = {0};
    fill_request(rank, ith_draw_number(&own), &mine);
    *first = mine;
    ith_status status = ith_comm_broadcast(rank->comm, first, sizeof *first, 0);
    if (!status)
        status = ith_comm_allgather(rank->comm, &own, sizeof own, all);
    if (status)
        return status;
    status = compare_requests(rank, &mine, first);
    if (!status)
        status = compare_threads(rank, all);
    status = ith_comm_agree(rank->comm, status);
    if (!status && all[0].lent)
        status = ith_fail(rank->context, ITH_ERR_ARGUMENT,
                          "the model was lent to the process of rank 0: it must have the model's files");
    return status;
}

ith_status ith_agree_on_run(ith_rank *rank, ith_status mine, uint64_t *run)
{
    const int64_t ranks = rank->ranks;
    record *all = rank->records = ith_alloc(rank->context, ranks, sizeof(record) + sizeof(int), "the ranks' records");
    ith_status status = ith_rank_agree(rank, (mine || all) ? mine : ITH_ERR_MEMORY);
    request first;
    if (!status)
        status = compare(rank, all, &first);
    if (status)
        return status;
    find_team(rank, all, (int *)(all + ranks));
    rank->dumps = first.dumps;
    rank->preview_every = first.preview_every;
    rank->saves = first.saves;
    *run = first.run;
    return ITH_OK;
}

/* A value of each rank. rank->records serves as the buffer for gathered values: it is large enough, and the records are
 * not needed any more. */
typedef struct value_of {
    int64_t position;
    uint64_t value;
} value_of;
_Static_assert(sizeof(value_of) <= sizeof(record), "values fit in the place of the records");

ith_status ith_sum_of_host(ith_rank *rank, int64_t mine, int64_t *sum)
{
    const value_of own = {rank->position, (uint64_t)mine};
    value_of *all = rank->records;
    ith_status status = ith_comm_allgather(rank->comm, &own, sizeof own, all);
    *sum = 0;
    for (int i = 0; i < rank->ranks && !status; i++)
        if (!all[i].position && host_of(rank->comm, i) == host_of(rank->comm, rank->rank))
            *sum += (int64_t)all[i].value;
    return status;
}

ith_status ith_rank_compare(ith_rank *rank, const char *name, uint64_t value, bool leaders)
{
    const value_of mine = {rank->position, value};
    value_of *all = rank->records;
    ith_status status = ith_comm_allgather(rank->comm, &mine, sizeof mine, all);
    for (int i = 1; i < rank->ranks && !status; i++)
        if (!(leaders && all[i].position) && all[i].value != all[0].value)
            status = ith_fail(rank->context, ITH_ERR_ARGUMENT,
                              "%s of rank %d and of rank 0 differ: all must be the same", name, i);
    return status;
}
