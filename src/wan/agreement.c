/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the options of all ranks, field by field (agreement.h). */
#include "agreement.h"

#include "../base/context.h"
#include "../base/hash.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The C type of an option or a model size, and how its values on two ranks are compared. */
typedef enum field_kind {
    TEXT,  /* const char *, compared by its hash */
    GIVEN, /* const char *, compared by whether it is NULL */
    WHOLE, /* int64_t or uint64_t */
    INT,   /* int, or an enum; field.word returns the name of a value */
    REAL   /* double */
} field_kind;

/* A member of a struct that must have the same value on all ranks. */
typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset;
    const char *(*word)(int value); /* the name of a value, for error messages; NULL: print the number */
} field;

#define WORD(type, noun)                                                                                               \
    static const char *noun##_word(int value)                                                                          \
    {                                                                                                                  \
        return ith_##noun##_name((type)value);                                                                         \
    }
WORD(ith_solver, solver)
WORD(ith_sigmas, sigmas)
WORD(ith_cfg, cfg)
WORD(ith_precision, precision)
WORD(ith_dtype, dtype)
WORD(ith_strategy, strategy)
WORD(ith_direction, direction)
WORD(ith_choice, choice)
WORD(ith_softmax, softmax)
WORD(ith_exchange_mode, exchange_mode)
WORD(ith_effort, effort)
WORD(ith_compress, compress)

#define AT(member) offsetof(ith_model_info, member)
static const field model_fields[] = {
    {"the model's number of experts", INT, AT(experts), NULL},
    {"the model's number of layers", WHOLE, AT(layers), NULL},
    {"the model's number of heads", WHOLE, AT(heads), NULL},
    {"the model's head_dim", WHOLE, AT(head_dim), NULL},
    {"the model's ffn_dim", WHOLE, AT(ffn_dim), NULL},
    {"the model's text_dim", WHOLE, AT(text_dim), NULL},
    {"the model's number of text encoder layers", WHOLE, AT(text_layers), NULL},
    {"the model's number of latent channels", WHOLE, AT(latent_channels), NULL},
};
#undef AT
#define AT(member) offsetof(ith_generate_options, member)
static const field option_fields[] = {
    {"from_latents", GIVEN, AT(from_latents), NULL},
    {"prompt", TEXT, AT(prompt), NULL},
    {"negative", TEXT, AT(negative), NULL},
    {"frames", WHOLE, AT(frames), NULL},
    {"height", WHOLE, AT(height), NULL},
    {"width", WHOLE, AT(width), NULL},
    {"steps", WHOLE, AT(steps), NULL},
    {"shift", REAL, AT(shift), NULL},
    {"guidance", REAL, AT(guidance[0]), NULL},
    {"guidance of the low-noise expert", REAL, AT(guidance[1]), NULL},
    {"boundary", REAL, AT(boundary), NULL},
    {"solver", INT, AT(solver), solver_word},
    {"sigmas", INT, AT(sigmas), sigmas_word},
    {"cfg", INT, AT(cfg), cfg_word},
    {"precision", INT, AT(precision), precision_word},
    {"seed", WHOLE, AT(seed), NULL},
    {"shard_weights", WHOLE, AT(shard_weights), NULL},
};
#undef AT
static const field type_fields[] = {
    {"the type in which products are computed", INT, offsetof(ith_number_types, products.multiplied), dtype_word},
};
#define AT(member) offsetof(ith_attn_options, member)
static const field attention_fields[] = {
    {"strategy", INT, AT(strategy), strategy_word},
    {"ulysses", INT, AT(ulysses), NULL},
    {"ring", INT, AT(ring), NULL},
    {"direction", INT, AT(direction), direction_word},
    {"chunks", INT, AT(chunks), NULL},
    {"fold", INT, AT(fold), choice_word},
    {"softmax", INT, AT(softmax), softmax_word},
    {"smooth", INT, AT(smooth), choice_word},
    {"exchange", INT, AT(exchange), exchange_mode_word},
    {"effort", INT, AT(effort), effort_word},
    {"compress", INT, AT(compress), compress_word},
    {"kernel", TEXT, AT(kernel), NULL},
    {"block_q", WHOLE, AT(block_q), NULL},
    {"block_kv", WHOLE, AT(block_kv), NULL},
    {"block_kv_compute", WHOLE, AT(block_kv_compute), NULL},
    {"block_kv_compute_in", WHOLE, AT(block_kv_compute_in), NULL},
};
#undef AT

#define COUNT(fields) ((int)(sizeof fields / sizeof *fields))
#define FIELDS (COUNT(model_fields) + COUNT(option_fields) + COUNT(type_fields) + COUNT(attention_fields))

/* The data that each rank sends to all others, so that every rank can compare the ranks. */
typedef struct record {
    uint64_t pipeline, run;
    int64_t dumps;          /* whether this rank writes a dump file; only the value of rank 0 counts */
    int64_t lent;           /* whether rank 0's process has sent the model to this rank's */
    int64_t threads;        /* must be equal on ranks that share a pipeline */
    int64_t values[FIELDS]; /* options and model sizes, in the order of the tables above, as 64-bit numbers */
} record;

/* Returns an option or a model size as a 64-bit number. Equal values give equal numbers. */
static int64_t read_value(const field *f, const char *base)
{
    const char *text;
    int64_t value = 0;
    int number;
    switch (f->kind) {
    case TEXT:
        memcpy(&text, base + f->offset, sizeof text);
        return text ? (int64_t)ith_hash(1, text, (int64_t)strlen(text)) : 0;
    case GIVEN: memcpy(&text, base + f->offset, sizeof text); return text != NULL;
    case INT: memcpy(&number, base + f->offset, sizeof number); return number;
    case WHOLE:
    case REAL: memcpy(&value, base + f->offset, sizeof value); return value;
    }
    return value;
}

static void read_values(int64_t **values, const field *fields, int count, const void *base)
{
    for (int i = 0; i < count; i++)
        *(*values)++ = read_value(&fields[i], base);
}

static void fill_record(const ith_rank *rank, uint64_t run, record *mine)
{
    int64_t *values = mine->values;
    mine->pipeline = rank->pipeline->number, mine->run = run;
    mine->lent = rank->pipeline->lent;
    mine->dumps = rank->options.dump_file != NULL;
    mine->threads = rank->options.threads;
    read_values(&values, model_fields, COUNT(model_fields), &rank->pipeline->model->info);
    read_values(&values, option_fields, COUNT(option_fields), &rank->options);
    read_values(&values, type_fields, COUNT(type_fields), &rank->types);
    read_values(&values, attention_fields, COUNT(attention_fields), &rank->attention);
}

static void print_value(const field *f, int64_t value, char *text, size_t bytes)
{
    double real;
    memcpy(&real, &value, sizeof real);
    if (f->word)
        snprintf(text, bytes, "%s", f->word((int)value));
    else if (f->kind == REAL)
        snprintf(text, bytes, "%.17g", real);
    else if (f->kind == GIVEN)
        snprintf(text, bytes, "%s", value ? "given" : "not given");
    else
        snprintf(text, bytes, "%lld", (long long)value);
}

static ith_status differ(const ith_rank *rank, const field *f, int other, int64_t there, int64_t here)
{
    char theirs[64], ours[64];
    if (f->kind == TEXT)
        return ith_fail(rank->context, ITH_ERR_ARGUMENT, "%s on rank %d and on rank 0 differ: all must be the same",
                        f->name, other);
    print_value(f, there, theirs, sizeof theirs);
    print_value(f, here, ours, sizeof ours);
    return ith_fail(rank->context, ITH_ERR_ARGUMENT, "%s is %s on rank %d and %s on rank 0: all must be the same",
                    f->name, theirs, other, ours);
}

static ith_status compare_fields(const ith_rank *rank, const record *all, int *at, const field *fields, int count)
{
    for (int i = 0; i < count; i++, ++*at)
        for (int other = 1; other < rank->ranks; other++)
            if (all[other].values[*at] != all[0].values[*at])
                return differ(rank, &fields[i], other, all[other].values[*at], all[0].values[*at]);
    return ITH_OK;
}

static ith_status compare_records(const ith_rank *rank, const record *all)
{
    int at = 0;
    /* With from_latents only rank 0 works: it decodes latents from a file. No other option needs to be the same. */
    bool decodes = rank->options.from_latents;
    ith_status status = compare_fields(rank, all, &at, model_fields, COUNT(model_fields));
    if (!status)
        status = compare_fields(rank, all, &at, option_fields, decodes ? 1 : COUNT(option_fields));
    if (!status && !decodes)
        status = compare_fields(rank, all, &at, type_fields, COUNT(type_fields));
    if (!status && !decodes)
        status = compare_fields(rank, all, &at, attention_fields, COUNT(attention_fields));
    for (int i = 1; i < rank->ranks && !status; i++)
        for (int j = 0; j < i && !status; j++)
            if (all[i].pipeline == all[j].pipeline && all[i].threads != all[j].threads)
                status = ith_fail(rank->context, ITH_ERR_ARGUMENT,
                                  "threads is %lld on rank %d and %lld on rank %d: the threads of a process are the "
                                  "same on all ranks that share its pipeline",
                                  (long long)all[i].threads, i, (long long)all[j].threads, j);
    return status;
}

/* The host of a rank. If the transport does not know places, every process counts as a host. */
static int64_t host_of(const ith_comm *comm, int rank)
{
    const ith_place place = ith_comm_place_of(comm, rank);
    return comm && comm->transport.place ? place.host : place.process;
}

/* Counts the processes and the hosts of a run, which are numbered in the order of their lowest ranks, and finds the
 * numbers of this rank's own. */
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

ith_status ith_agree_on_run(ith_rank *rank, ith_status mine, uint64_t *run)
{
    const int64_t ranks = rank->ranks;
    record *all = rank->records = ith_alloc(rank->context, ranks, sizeof(record) + sizeof(int), "the ranks' records");
    ith_status status = ith_rank_agree(rank, mine || all ? mine : ITH_ERR_MEMORY);
    if (status)
        return status;
    record own = {0};
    fill_record(rank, ith_draw_number(&own), &own);
    status = ith_comm_allgather(rank->comm, &own, sizeof own, all);
    if (!status)
        status = compare_records(rank, all);
    if (!status && all[0].lent)
        status = ith_fail(rank->context, ITH_ERR_ARGUMENT,
                          "the model was lent to the process of rank 0: it must have the model's files");
    if (status)
        return status;
    find_team(rank, all, (int *)(all + ranks));
    rank->dumps = all[0].dumps;
    *run = all[0].run;
    return ITH_OK;
}

ith_status ith_rank_compare(ith_rank *rank, const char *name, uint64_t value)
{
    /* rank->records serves as the buffer for gathered values: it is large enough, and its contents are not needed any
     * more. */
    typedef struct value_of {
        int64_t position;
        uint64_t value;
    } value_of;
    const value_of mine = {rank->position, value};
    value_of *all = rank->records;
    ith_status status = ith_comm_allgather(rank->comm, &mine, sizeof mine, all);
    for (int i = 1; i < rank->ranks && !status; i++)
        if (!all[i].position && all[i].value != all[0].value)
            status = ith_fail(rank->context, ITH_ERR_ARGUMENT,
                              "%s of rank %d and of rank 0 differ: all must be the same", name, i);
    return status;
}
