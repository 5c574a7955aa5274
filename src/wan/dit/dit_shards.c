/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the layers of an expert into two slots, from the parts that the hosts of a run keep (dit_shards.h). */
#include "dit_shards.h"

#include "../../base/prefetch.h"
#include "../../base/shared_memory.h"
#include "../../base/size.h"
#include "../../base/trace.h"
#include "../../comm/comm.h"
#include "../../files/mapping.h"
#include "dit_weights.h"

#include <pthread.h>
#include <string.h>

#define SLOTS 2            /* an expert of one layer has one */
#define WAIT_SECONDS 0.02  /* time between two checks for a failed group while a rank waits for the loader */
#define ALIVE_SECONDS 1e-3 /* time between two calls of ith_comm_alive by a leader that waits */
#define ALIGNMENT 64       /* alignment of a matrix in a slot */

/* The number of matrices of ith_dit_layer_linears: the linear layer of q, k and v has three, the others one. */
#define MATRICES (ITH_DIT_LINEARS + 2)

/* A matrix of a layer, and its places in its file and in the slot. */
typedef struct matrix {
    ith_linear *linear;
    int index; /* number of the matrix in its linear layer */
    const char *data, *file;
    int64_t begin, bytes; /* place in the slot */
} matrix;

/* The matrices of one layer, in the order in which they lie in a slot, and the bytes that they take there. */
typedef struct shared_layer {
    matrix matrices[MATRICES];
    int64_t bytes;
} shared_layer;

/* The beginning of the memory of the slots, which all ranks of a host read and write. */
typedef struct slot_state {
    _Atomic int64_t loaded;       /* number of complete loads */
    _Atomic int64_t ended[SLOTS]; /* number of uses of each slot that have ended since the beginning */
    _Atomic uint32_t changes;     /* number of changes of the members above; ranks wait for the next change */
} slot_state;

/* The slots of a host, as one of its processes uses them. */
struct ith_dit_shards {
    ith_context *context;
    ith_comm *loaders; /* NULL: another process of this host makes the loads */
    int users, slot_count;
    int *readers;     /* [reader_count] the ranks of `loaders` that have files */
    int reader_count; /* the readers share out every layer */
    int own_part;     /* index of this process among the readers; -1: it has no files */
    int64_t loads, layers, slot_bytes;
    shared_layer *shared; /* [layers] */
    slot_state *state;    /* followed by the slots: memory of the allocator, or of `memory` */
    ith_shared_memory memory;
    ith_transfer *transfers; /* [2][hosts]: sends and receives of the load under way */
    ith_request *request;    /* the exchange of the load under way; the loader alone uses it */
    int64_t posted;          /* number of loads that have begun; the loader alone uses it */
    ith_status status;       /* the first failure of a load; the loader alone uses it */
    bool busy;               /* the loader is making loads: a tick of its observer meanwhile does nothing */
    double traced;           /* beginning of the load under way, for the trace */
    pthread_mutex_t lock;    /* protects the member below, and the places of the layers' matrices */
    int64_t relocated;       /* number of loads from whose slots the layers of this process read */
};

/* ---- Matrices of a layer --------------------------------------------------------------------------------------- */

static void list_matrices(const ith_dit_layer *layer, shared_layer *out)
{
    ith_linear *linears[ITH_DIT_LINEARS];
    int count = 0;
    ith_dit_layer_linears(layer, linears);
    *out = (shared_layer){.bytes = 0};
    for (int i = 0; i < ITH_DIT_LINEARS; i++) {
        const ith_linear_weight *weights;
        int matrices = ith_linear_matrices(linears[i], &weights);
        for (int n = 0; n < matrices; n++, count++) {
            int64_t bytes = weights[n].rows * ith_dtype_row_bytes(weights[n].type, ith_linear_inputs(linears[i]));
            out->matrices[count] = (matrix){linears[i], n, weights[n].data, weights[n].file, out->bytes, bytes};
            out->bytes += ith_round_up(bytes, ALIGNMENT);
        }
    }
}

/* The part of a layer's bytes that reader `reader` keeps. */
static void part_of(const ith_dit_shards *s, const shared_layer *layer, int reader, int64_t *begin, int64_t *bytes)
{
    ith_share(layer->bytes / ALIGNMENT, s->reader_count, reader, begin, bytes);
    *begin *= ALIGNMENT, *bytes *= ALIGNMENT;
}

/* ---- Loads ----------------------------------------------------------------------------------------------------- */

static const shared_layer *layer_of(const ith_dit_shards *s, int64_t load)
{
    return &s->shared[load % s->layers];
}

static char *slot_of(const ith_dit_shards *s, int64_t load)
{
    return (char *)s->state + ith_round_up(sizeof *s->state, ALIGNMENT) + load % s->slot_count * s->slot_bytes;
}

/* Copies this process's part of a layer from its files to the slot `to`. If `to` is NULL, asks the system to read this
 * part of the files, and does not wait for it. */
static ith_status read_own_part(const ith_dit_shards *s, const shared_layer *layer, char *to)
{
    int64_t begin, bytes;
    ith_status status = ITH_OK;
    if (s->own_part < 0)
        return ITH_OK;
    part_of(s, layer, s->own_part, &begin, &bytes);
    for (int i = 0; i < MATRICES && !status; i++) {
        const matrix *m = &layer->matrices[i];
        int64_t first = ith_max64(begin, m->begin), end = ith_min64(begin + bytes, m->begin + m->bytes);
        const char *from = m->data + (first - m->begin);
        if (first < end && to)
            status = ith_mapping_copy(s->context, m->file ? m->file : "a mapped file", to + first, from, end - first);
        else if (first < end && m->file)
            ith_prefetch(from, end - first);
    }
    return status;
}

static ith_transfer transfer_of(const ith_dit_shards *s, const shared_layer *layer, int reader, int peer, char *slot)
{
    int64_t begin, bytes;
    part_of(s, layer, reader, &begin, &bytes);
    return (ith_transfer){peer, {.data = slot + begin, .count = {1, 1}, .bytes = bytes}};
}

/* Whether all ranks of the host have ended their use of the slot of the next load. */
static bool slot_is_free(const ith_dit_shards *s)
{
    return atomic_load(&s->state->ended[s->posted % s->slot_count]) == s->posted / s->slot_count * s->users;
}

/* Begins the next load: reads this process's part, sends it to all others, and receives the parts of the other readers.
 */
static ith_status post(ith_dit_shards *s)
{
    const shared_layer *layer = layer_of(s, s->posted);
    const int hosts = ith_comm_size(s->loaders), self = ith_comm_rank(s->loaders);
    char *slot = slot_of(s, s->posted);
    ith_transfer *sends = s->transfers, *receives = s->transfers + hosts;
    int send_count = 0, receive_count = 0;
    s->traced = ith_trace_begin(s->context);
    ith_status status = read_own_part(s, layer, slot);
    if (status)
        return status;
    for (int i = 1; i < hosts && s->own_part >= 0; i++)
        sends[send_count++] = transfer_of(s, layer, s->own_part, (self + i) % hosts, slot);
    for (int reader = 0; reader < s->reader_count; reader++)
        if (reader != s->own_part)
            receives[receive_count++] = transfer_of(s, layer, reader, s->readers[reader], slot);
    s->posted++;
    if (s->posted < s->loads)
        read_own_part(s, layer_of(s, s->posted), NULL);
    return ith_comm_post(s->loaders, sends, send_count, receives, receive_count, &s->request);
}

/* Wakes the ranks of the host that wait for the load that is now complete. */
static void publish(ith_dit_shards *s)
{
    ith_trace_end(s->context, s->traced, "weights", ITH_TRACE_EXCHANGE);
    atomic_fetch_add(&s->state->loaded, 1);
    ith_counter_advance(&s->state->changes);
}

/* Moves the data of the load that is under way, or begins the next one if its slot is free. */
static void progress(ith_dit_shards *s)
{
    bool done = false;
    if (s->request) {
        s->status = ith_comm_test(s->loaders, &s->request, &done);
        if (done)
            publish(s);
    } else if (s->posted < s->loads && slot_is_free(s)) {
        s->status = post(s);
    }
}

void ith_dit_shards_progress(ith_dit_shards *s)
{
    if (!s->loaders || s->busy || s->status)
        return;
    s->busy = true;
    progress(s);
    s->busy = false;
}

/* ---- Use ------------------------------------------------------------------------------------------------------- */

/* Whether load `use` is complete. If it is not, waits for a short time, or until the state of the slots changes. A
 * leader also moves the messages of its process: other processes may wait for them. */
static bool await_load(ith_dit_shards *s, ith_comm *comm, bool leads, int64_t use)
{
    uint32_t seen = atomic_load(&s->state->changes);
    if (atomic_load(&s->state->loaded) > use)
        return true;
    ith_counter_wait(&s->state->changes, seen, leads ? ALIVE_SECONDS : WAIT_SECONDS);
    if (leads)
        ith_comm_alive(comm);
    return false;
}

/* The loader's part: makes loads until load `use` is complete. */
static ith_status load_until(ith_dit_shards *s, ith_comm *comm, int64_t use)
{
    s->busy = true;
    while (atomic_load(&s->state->loaded) <= use && !s->status) {
        if (s->request) {
            s->status = ith_comm_wait(s->loaders, &s->request);
            if (!s->status)
                publish(s);
        } else if (slot_is_free(s)) {
            s->status = post(s);
        } else {
            await_load(s, comm, true, use);
            s->status = ith_context_check(s->context);
        }
    }
    s->busy = false;
    ith_dit_shards_progress(s);
    return s->status;
}

/* Makes the layer of load `use` read from its slot. The first rank of a process that begins this use does it: no rank
 * computes this layer then, because all have ended their use of the slot before the load. */
static void relocate(ith_dit_shards *s, int64_t use)
{
    const shared_layer *layer = layer_of(s, use);
    const char *slot = slot_of(s, use);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < MATRICES && s->relocated == use; i++)
        ith_linear_relocate(layer->matrices[i].linear, layer->matrices[i].index, slot + layer->matrices[i].begin);
    s->relocated = ith_max64(s->relocated, use + 1);
    pthread_mutex_unlock(&s->lock);
}

ith_status ith_dit_shards_begin(ith_dit_shards *s, ith_context *context, ith_comm *comm, bool leads, int64_t use)
{
    ith_status status = ITH_OK;
    double traced = ith_trace_begin(context);
    if (leads && s->loaders)
        status = load_until(s, comm, use);
    while (!status && !await_load(s, comm, leads, use)) {
        status = ith_context_check(context);
        if (!status && comm && ith_comm_failed(comm))
            status = ith_fail(context, ITH_ERR_ABORTED, "the group of ranks has ended");
    }
    if (!status)
        relocate(s, use);
    ith_trace_end(context, traced, "wait for weights", "wait");
    return status;
}

void ith_dit_shards_end(ith_dit_shards *s, int64_t use)
{
    atomic_fetch_add(&s->state->ended[use % s->slot_count], 1);
    ith_counter_advance(&s->state->changes);
}

/* ---- Life ------------------------------------------------------------------------------------------------------ */

static int slots_of(int64_t layers)
{
    return layers < SLOTS ? 1 : SLOTS;
}

/* The bytes of the slots and of the state before them. */
static int64_t memory_bytes(int slot_count, int64_t slot_bytes)
{
    return ith_round_up(sizeof(slot_state), ALIGNMENT) + slot_count * slot_bytes;
}

/* Allocates the lists of this process and, on the loader, the slots. */
static ith_status allocate(ith_context *context, const ith_dit *dit, const ith_shard_ranks *ranks, ith_dit_shards *s)
{
    const int hosts = ranks->loaders ? ith_comm_size(ranks->loaders) : 0;
    s->shared = ith_alloc(context, s->layers, sizeof *s->shared, "the layers of an expert");
    s->transfers = ith_alloc(context, hosts, 2 * sizeof *s->transfers, "the layers of an expert");
    s->readers = ith_alloc(context, hosts, sizeof *s->readers, "the layers of an expert");
    if (!s->shared || !s->transfers || !s->readers)
        return ITH_ERR_MEMORY;
    for (int64_t i = 0; i < s->layers; i++) {
        list_matrices(&dit->layers[i], &s->shared[i]);
        s->slot_bytes = ith_max64(s->slot_bytes, s->shared[i].bytes);
    }
    const int64_t bytes = memory_bytes(s->slot_count, s->slot_bytes);
    if (!ranks->loaders)
        return ITH_OK;
    if (ith_comm_size(ranks->neighbours) > 1) {
        ith_status status = ith_shared_memory_create(context, bytes, "two layers of an expert", &s->memory);
        s->state = s->memory.data;
        return status;
    }
    s->state = ith_alloc(context, bytes, 1, "two layers of an expert");
    if (!s->state)
        return ITH_ERR_MEMORY;
    *s->state = (slot_state){0};
    return ITH_OK;
}

/* Maps the slots of the loader into the memory of the other processes of the host. status: of this process so far. All
 * processes of the host must call this, also with an error. */
static ith_status open_slots(ith_context *context, const ith_shard_ranks *ranks, ith_dit_shards *s, ith_status status)
{
    ith_shared_handle handle = {0};
    if (ith_comm_size(ranks->neighbours) < 2)
        return status;
    if (s && s->memory.data)
        handle = ith_shared_memory_handle(&s->memory);
    ith_status reached = ith_comm_broadcast(ranks->neighbours, &handle, sizeof handle, 0);
    if (!status && !reached && !ranks->loaders && !handle.pid)
        status = ith_fail(context, ITH_ERR_ABORTED, "another process of this host has no memory for two layers");
    if (!status && !reached && !ranks->loaders) {
        status = ith_shared_memory_open(context, &handle, memory_bytes(s->slot_count, s->slot_bytes), &s->memory);
        s->state = s->memory.data;
    }
    if (!reached)
        reached = ith_comm_barrier(ranks->neighbours); /* now no process needs the handle any more */
    if (s)
        ith_shared_memory_hide(&s->memory);
    return status ? status : reached;
}

/* Finds the loaders that have files. status: of this process so far. All loaders must call this, also with an error. */
static ith_status find_readers(const ith_shard_ranks *ranks, ith_dit_shards *s, ith_status status)
{
    const int hosts = ith_comm_size(ranks->loaders);
    for (int host = 0; host < hosts; host++) {
        int64_t reads = ranks->has_files;
        ith_status reached = ith_comm_broadcast(ranks->loaders, &reads, sizeof reads, host);
        if (reached)
            return status ? status : reached;
        if (reads && !status) {
            if (host == ith_comm_rank(ranks->loaders))
                s->own_part = s->reader_count;
            s->readers[s->reader_count++] = host;
        }
    }
    return status;
}

/* Allocates the struct with its constants. */
static ith_dit_shards *make(ith_context *context, const ith_dit *dit, const ith_shard_ranks *ranks, int64_t loads)
{
    ith_dit_shards *s = ith_alloc_zero(context, 1, sizeof *s, "the layers of an expert");
    if (!s)
        return NULL;
    s->context = context, s->loaders = ranks->loaders, s->users = ranks->users, s->loads = loads;
    s->layers = dit->config.layers, s->slot_count = slots_of(dit->config.layers);
    s->own_part = -1, s->memory.file = -1;
    s->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    return s;
}

ith_status ith_dit_shards_create(ith_context *context, ith_dit *dit, const ith_shard_ranks *ranks, int64_t loads,
                                 ith_dit_shards **out)
{
    ith_dit_shards *s = make(context, dit, ranks, loads);
    ith_status status = s ? allocate(context, dit, ranks, s) : ITH_ERR_MEMORY;
    status = open_slots(context, ranks, s, status);
    if (ranks->loaders)
        status = find_readers(ranks, s, status);
    if (status)
        ith_dit_shards_free(context, &s);
    *out = s;
    return status;
}

void ith_dit_shards_free(ith_context *context, ith_dit_shards **shards)
{
    ith_dit_shards *s = *shards;
    *shards = NULL;
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    if (!s->memory.data)
        ith_free(context, s->state);
    ith_shared_memory_free(context, &s->memory);
    ith_free(context, s->readers);
    ith_free(context, s->transfers);
    ith_free(context, s->shared);
    ith_free(context, s);
}

/* The memory that a process takes for an expert whose largest layer takes slot_bytes. */
static int64_t all_bytes(int64_t layers, int64_t slot_bytes, const ith_shard_place *place)
{
    const int64_t memory = memory_bytes(slots_of(layers), slot_bytes);
    const int64_t lists =
        (int64_t)sizeof(ith_dit_shards) + layers * (int64_t)sizeof(shared_layer) + 4 * ITH_ALLOC_HEADER;
    if (!place->is_loader)
        return lists;
    return lists + place->hosts * (int64_t)(2 * sizeof(ith_transfer) + sizeof(int)) +
           (place->processes > 1 ? ith_shared_memory_bytes(memory) : memory + ITH_ALLOC_HEADER);
}

ith_status ith_dit_shards_bytes(ith_context *context, const ith_dit_config *config, ith_store *store,
                                ith_number_types types, const ith_shard_place *place, int64_t *bytes)
{
    ith_dit *dit = NULL;
    ith_status status = ith_dit_open(context, config, store, &(ith_dit_choices){.types = types}, &dit);
    int64_t slot = 0;
    *bytes = 0;
    for (int64_t i = 0; !status && i < dit->config.layers; i++) {
        shared_layer layer;
        list_matrices(&dit->layers[i], &layer);
        slot = ith_max64(slot, layer.bytes);
    }
    if (!status)
        *bytes = all_bytes(dit->config.layers, slot, place);
    ith_dit_free(context, &dit);
    return status;
}

ith_status ith_dit_shards_estimate(ith_context *context, const ith_dit_config *config, ith_number_types types,
                                   const ith_shard_place *place, int64_t *bytes)
{
    ith_linear *linears[ITH_DIT_LINEARS];
    ith_dit *dit = NULL;
    int64_t slot = 0;
    *bytes = 0;
    ith_status status = ith_dit_sketch(context, config, &(ith_dit_choices){.types = types}, &dit);
    if (status)
        return status;
    ith_dit_layer_linears(&dit->layers[0], linears);
    for (int i = 0; i < ITH_DIT_LINEARS; i++)
        slot += ith_round_up(ith_linear_inputs(linears[i]) * ith_linear_outputs(linears[i]) * ith_dtype_bytes(ITH_BF16),
                             ALIGNMENT);
    *bytes = all_bytes(config->layers, slot, place);
    ith_dit_free(context, &dit);
    return ITH_OK;
}
