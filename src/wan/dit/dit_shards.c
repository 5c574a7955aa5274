/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the layers of an expert into two slots, from the parts that the processes of a run keep (dit_shards.h). */
#include "dit_shards.h"

#include "../../base/clock.h"
#include "../../base/prefetch.h"
#include "../../base/size.h"
#include "../../base/trace.h"
#include "../../comm/comm.h"
#include "../../files/mapping.h"
#include "dit_weights.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define SLOTS 2           /* an expert of one layer has one */
#define WAIT_SECONDS 0.02 /* between two looks at the group's failure while a rank waits for its leader */
#define ALIGNMENT 64      /* of a matrix in a slot */

/* The number of matrices of ith_dit_layer_linears: the linear layer of q, k and v has three, the others one. */
#define MATRICES (ITH_DIT_LINEARS + 2)

/* A matrix of a layer: where it lies in its file, and in the slot. */
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

struct ith_dit_shards {
    ith_context *context;
    ith_comm *leaders;
    int users, slot_count;
    int64_t loads, layers, slot_bytes;
    shared_layer *shared; /* [layers] */
    char *slots[SLOTS];
    ith_transfer *transfers; /* [2][processes]: sends and receives of the load under way */
    ith_request *request;    /* the exchange of the load under way; the leader alone uses it */
    int64_t posted;          /* number of loads that have begun; the leader alone uses it */
    ith_status status;       /* the first failure of a load; the leader alone uses it */
    bool busy;               /* the leader is making loads: a tick of its observer meanwhile does nothing */
    double traced;           /* beginning of the load under way, for the trace */
    pthread_mutex_t lock;    /* protects the members below */
    pthread_cond_t loaded_more;
    int64_t loaded;       /* number of complete loads */
    int64_t ended[SLOTS]; /* how many uses of each slot's loads have ended, since the beginning */
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
            int64_t bytes = weights[n].rows * ith_linear_inputs(linears[i]) * ith_dtype_bytes(weights[n].type);
            out->matrices[count] = (matrix){linears[i], n, weights[n].data, weights[n].file, out->bytes, bytes};
            out->bytes += ith_round_up(bytes, ALIGNMENT);
        }
    }
}

/* The part of a layer's bytes that a process keeps. */
static void part_of(const ith_dit_shards *s, const shared_layer *layer, int process, int64_t *begin, int64_t *bytes)
{
    ith_share(layer->bytes / ALIGNMENT, ith_comm_size(s->leaders), process, begin, bytes);
    *begin *= ALIGNMENT, *bytes *= ALIGNMENT;
}

/* ---- Loads ----------------------------------------------------------------------------------------------------- */

static const shared_layer *layer_of(const ith_dit_shards *s, int64_t load)
{
    return &s->shared[load % s->layers];
}

/* Copies this process's part of a layer from its files to the slot `to`. If `to` is NULL, asks the system to read this
 * part of the files, and does not wait for it. */
static ith_status read_own_part(const ith_dit_shards *s, const shared_layer *layer, char *to)
{
    int64_t begin, bytes;
    part_of(s, layer, ith_comm_rank(s->leaders), &begin, &bytes);
    ith_status status = ITH_OK;
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

static ith_transfer transfer_of(const ith_dit_shards *s, const shared_layer *layer, int process, int peer, char *slot)
{
    int64_t begin, bytes;
    part_of(s, layer, process, &begin, &bytes);
    return (ith_transfer){peer, {.data = slot + begin, .count = {1, 1}, .bytes = bytes}};
}

/* Whether all ranks have ended their use of the slot of the next load. */
static bool slot_is_free(ith_dit_shards *s)
{
    pthread_mutex_lock(&s->lock);
    bool is_free = s->ended[s->posted % s->slot_count] == s->posted / s->slot_count * s->users;
    pthread_mutex_unlock(&s->lock);
    return is_free;
}

/* Begins the next load: reads this process's part, sends it to all others, and receives theirs. */
static ith_status post(ith_dit_shards *s)
{
    const shared_layer *layer = layer_of(s, s->posted);
    const int processes = ith_comm_size(s->leaders), self = ith_comm_rank(s->leaders);
    char *slot = s->slots[s->posted % s->slot_count];
    ith_transfer *sends = s->transfers, *receives = s->transfers + processes;
    int count = 0;
    s->traced = ith_trace_begin(s->context);
    ith_status status = read_own_part(s, layer, slot);
    if (status)
        return status;
    for (int i = 1; i < processes; i++, count++) {
        int to = (self + i) % processes, from = (self + processes - i) % processes;
        sends[count] = transfer_of(s, layer, self, to, slot);
        receives[count] = transfer_of(s, layer, from, from, slot);
    }
    s->posted++;
    if (s->posted < s->loads)
        read_own_part(s, layer_of(s, s->posted), NULL);
    return ith_comm_post(s->leaders, sends, count, receives, count, &s->request);
}

/* Lets the layer of a complete load read from its slot, and wakes the ranks that wait for it. */
static void publish(ith_dit_shards *s)
{
    const shared_layer *layer = layer_of(s, s->loaded);
    const char *slot = s->slots[s->loaded % s->slot_count];
    ith_trace_end(s->context, s->traced, "weights", ITH_TRACE_EXCHANGE);
    for (int i = 0; i < MATRICES; i++)
        ith_linear_relocate(layer->matrices[i].linear, layer->matrices[i].index, slot + layer->matrices[i].begin);
    pthread_mutex_lock(&s->lock);
    s->loaded++;
    pthread_cond_broadcast(&s->loaded_more);
    pthread_mutex_unlock(&s->lock);
}

/* Moves the data of the load that is under way, or begins the next one if its slot is free. */
static void progress(ith_dit_shards *s)
{
    bool done = false;
    if (s->request) {
        s->status = ith_comm_test(s->leaders, &s->request, &done);
        if (done)
            publish(s);
    } else if (s->posted < s->loads && s->posted == s->loaded && slot_is_free(s)) {
        s->status = post(s);
    }
}

void ith_dit_shards_progress(ith_dit_shards *s)
{
    if (s->busy || s->status)
        return;
    s->busy = true;
    progress(s);
    s->busy = false;
}

/* ---- Use ------------------------------------------------------------------------------------------------------- */

/* Waits for load `use` for a short time, or until any load is complete. Returns false if load `use` was complete
 * before.
 */
static bool wait_a_moment(ith_dit_shards *s, int64_t use)
{
    double until = ith_clock_seconds() + WAIT_SECONDS, whole = floor(until);
    const struct timespec end = {.tv_sec = (time_t)whole, .tv_nsec = (long)((until - whole) * 1e9)};
    pthread_mutex_lock(&s->lock);
    bool there = s->loaded > use;
    if (!there)
        pthread_cond_timedwait(&s->loaded_more, &s->lock, &end);
    pthread_mutex_unlock(&s->lock);
    return !there;
}

/* The leader's part: makes loads until load `use` is complete. */
static ith_status load_until(ith_dit_shards *s, int64_t use)
{
    s->busy = true;
    while (s->loaded <= use && !s->status) {
        if (s->request) {
            s->status = ith_comm_wait(s->leaders, &s->request);
            if (!s->status)
                publish(s);
        } else if (slot_is_free(s)) {
            s->status = post(s);
        } else {
            wait_a_moment(s, use);
            s->status = ith_context_check(s->context);
        }
    }
    s->busy = false;
    ith_dit_shards_progress(s);
    return s->status;
}

ith_status ith_dit_shards_begin(ith_dit_shards *s, ith_context *context, const ith_comm *comm, bool leads, int64_t use)
{
    ith_status status = ITH_OK;
    double traced = ith_trace_begin(context);
    if (leads)
        status = load_until(s, use);
    while (!leads && !status && wait_a_moment(s, use)) {
        status = ith_context_check(context);
        if (!status && comm && ith_comm_failed(comm))
            status = ith_fail(context, ITH_ERR_ABORTED, "the group of ranks has ended");
    }
    ith_trace_end(context, traced, "wait for weights", "wait");
    return status;
}

void ith_dit_shards_end(ith_dit_shards *s, int64_t use)
{
    pthread_mutex_lock(&s->lock);
    s->ended[use % s->slot_count]++;
    pthread_mutex_unlock(&s->lock);
}

/* ---- Life ------------------------------------------------------------------------------------------------------ */

static int slots_of(int64_t layers)
{
    return layers < SLOTS ? 1 : SLOTS;
}

static ith_status allocate(ith_context *context, const ith_dit *dit, ith_dit_shards *s)
{
    s->shared = ith_alloc(context, s->layers, sizeof *s->shared, "the layers of an expert");
    s->transfers = ith_alloc(context, ith_comm_size(s->leaders), 2 * sizeof *s->transfers, "the layers of an expert");
    if (!s->shared || !s->transfers)
        return ITH_ERR_MEMORY;
    for (int64_t i = 0; i < s->layers; i++) {
        list_matrices(&dit->layers[i], &s->shared[i]);
        s->slot_bytes = ith_max64(s->slot_bytes, s->shared[i].bytes);
    }
    for (int i = 0; i < s->slot_count; i++) {
        s->slots[i] = ith_alloc(context, s->slot_bytes, 1, "two layers of an expert");
        if (!s->slots[i])
            return ITH_ERR_MEMORY;
    }
    return ITH_OK;
}

ith_status ith_dit_shards_create(ith_context *context, ith_dit *dit, ith_comm *leaders, int users, int64_t loads,
                                 ith_dit_shards **out)
{
    pthread_condattr_t monotonic;
    *out = NULL;
    ith_dit_shards *s = ith_alloc_zero(context, 1, sizeof *s, "the layers of an expert");
    if (!s)
        return ITH_ERR_MEMORY;
    s->context = context, s->leaders = leaders, s->users = users, s->loads = loads, s->layers = dit->config.layers;
    s->slot_count = slots_of(dit->config.layers);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->loaded_more, &monotonic);
    pthread_condattr_destroy(&monotonic);
    ith_status status = allocate(context, dit, s);
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
    pthread_cond_destroy(&s->loaded_more);
    pthread_mutex_destroy(&s->lock);
    for (int i = 0; i < SLOTS; i++)
        ith_free(context, s->slots[i]);
    ith_free(context, s->transfers);
    ith_free(context, s->shared);
    ith_free(context, s);
}

/* The memory of an expert whose largest layer takes slot_bytes. */
static int64_t all_bytes(int64_t layers, int64_t slot_bytes, int processes)
{
    const int64_t slots = slots_of(layers);
    return (int64_t)sizeof(ith_dit_shards) + layers * (int64_t)sizeof(shared_layer) +
           2 * processes * (int64_t)sizeof(ith_transfer) + slots * slot_bytes + (3 + slots) * ITH_ALLOC_HEADER;
}

ith_status ith_dit_shards_bytes(ith_context *context, const char *folder, ith_number_types types, int processes,
                                int64_t *bytes)
{
    ith_dit *dit = NULL;
    ith_status status = ith_dit_open(context, folder, types, false, &dit);
    int64_t slot = 0;
    *bytes = 0;
    for (int64_t i = 0; !status && i < dit->config.layers; i++) {
        shared_layer layer;
        list_matrices(&dit->layers[i], &layer);
        slot = ith_max64(slot, layer.bytes);
    }
    if (!status)
        *bytes = all_bytes(dit->config.layers, slot, processes);
    ith_dit_free(context, &dit);
    return status;
}

ith_status ith_dit_shards_estimate(ith_context *context, const ith_dit_config *config, ith_number_types types,
                                   int processes, int64_t *bytes)
{
    ith_linear *linears[ITH_DIT_LINEARS];
    ith_dit *dit = NULL;
    int64_t slot = 0;
    *bytes = 0;
    ith_status status = ith_dit_sketch(context, config, types, &dit);
    if (status)
        return status;
    ith_dit_layer_linears(&dit->layers[0], linears);
    for (int i = 0; i < ITH_DIT_LINEARS; i++)
        slot += ith_round_up(ith_linear_inputs(linears[i]) * ith_linear_outputs(linears[i]) * ith_dtype_bytes(ITH_BF16),
                             ALIGNMENT);
    *bytes = all_bytes(config->layers, slot, processes);
    ith_dit_free(context, &dit);
    return ITH_OK;
}
