/* SPDX-License-Identifier: Apache-2.0 */
/* The transport nccl between processes that share one GPU: data of device memory in groups and sub-groups, the order
 * with other work of the caller's stream, exchanges of host memory in between, and the failures of ranks. Arguments:
 * names of cases; without arguments all cases run. */
#include "nccl_rank.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_TRANSFERS = 64, GAP = 256, BATCH = 3 };

/* ---- Data -------------------------------------------------------------------------------------------------------- */

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint32_t h = (a + 0x9e3779b9u) * 0x85ebca6bu ^ (b + 0x7f4a7c15u) * 0xc2b2ae35u;
    h ^= h >> 15;
    return h * 0x2c1b3c6du ^ (h >> 13);
}

/* A batch of exchanges of a group, as all ranks know it: the regions that each rank sends to each other rank. */
typedef struct plan {
    uint32_t seed;
    int regions;   /* number of regions from one rank to another */
    int64_t bytes; /* the most bytes of most regions */
    bool sparse;   /* some pairs exchange nothing */
} plan;

static int regions_of(const plan *p, int exchange, int from, int to)
{
    const uint32_t h = mix(p->seed + (uint32_t)exchange, (uint32_t)(from * 64 + to));
    return p->sparse && h % 3 == 0 ? 0 : p->regions;
}

static int64_t bytes_of(const plan *p, int exchange, int from, int to, int region)
{
    static const int64_t odd[] = {0, 1, 3, 127, 4097};
    const uint32_t h = mix(mix(p->seed, (uint32_t)exchange), (uint32_t)((from * 64 + to) * 64 + region));
    return h % 8 < 5 && p->regions > 1 ? odd[h % 8] : p->bytes - (int64_t)(h % 1000) % p->bytes;
}

static uint32_t key_of(const plan *p, int exchange, int from, int to, int region)
{
    return mix(mix(p->seed ^ 0x51u, (uint32_t)exchange), (uint32_t)((from * 64 + to) * 64 + region));
}

static void write_bytes(char *data, int64_t bytes, uint32_t key)
{
    for (int64_t i = 0; i < bytes; i++)
        data[i] = (char)((key + (uint32_t)i * 2654435761u) >> 24);
}

static int64_t differences(const char *data, int64_t bytes, uint32_t key)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < bytes; i++)
        wrong += data[i] != (char)((key + (uint32_t)i * 2654435761u) >> 24);
    return wrong;
}

/* The transfers of a rank in an exchange of a group, at offsets from `base` on in its memory, with gaps. */
typedef struct side {
    ith_transfer list[MOST_TRANSFERS];
    int64_t offsets[MOST_TRANSFERS];
    uint32_t keys[MOST_TRANSFERS];
    int count;
    int64_t end;
} side;

static void lay_out(const plan *p, int exchange, int rank, int size, bool sends, CUdeviceptr memory, int64_t base,
                    side *out)
{
    out->count = 0;
    out->end = base + GAP;
    for (int other = 0; other < size; other++) {
        const int from = sends ? rank : other, to = sends ? other : rank;
        for (int i = 0; other != rank && i < regions_of(p, exchange, from, to); i++) {
            const int64_t bytes = bytes_of(p, exchange, from, to, i);
            out->offsets[out->count] = out->end;
            out->keys[out->count] = key_of(p, exchange, from, to, i);
            out->list[out->count++] = nccl_transfer(other, memory + (CUdeviceptr)out->end, bytes);
            out->end += bytes + GAP + (bytes & 1); /* odd addresses too */
        }
    }
}

/* ---- Batches of exchanges ---------------------------------------------------------------------------------------- */

/* The exchanges of a batch, as one rank sees them: `out` sends and `in` receives. Both use the bytes from begin to end
 * of the rank's memories. */
typedef struct lane {
    side out, in;
    int64_t begin, end;
} lane;

/* Posts an exchange. Before it the stream copies the data to the device. After it the stream fetches the data that
 * arrived and overwrites the data that were sent. So a transport that ignores the order of the stream fails the
 * test. */
static void post_lane(nccl_rank *r, void *state, int64_t number, const lane *l)
{
    char *const up = r->host, *const down = r->host + NCCL_RANK_BYTES / 2;
    const CUdeviceptr at = (CUdeviceptr)l->begin;
    const size_t bytes = (size_t)(l->end - l->begin);
    const char *sentence = "";
    for (int i = 0; i < l->out.count; i++)
        write_bytes(up + l->out.offsets[i], l->out.list[i].region.bytes, l->out.keys[i]);
    NCCL_MUST(r, fill(r->receive + at, 0xee, bytes, r->stream));
    NCCL_MUST(r, upload(r->send + at, up + l->begin, bytes, r->stream));
    if (nccl_post(r, state, number, l->out.list, l->out.count, l->in.list, l->in.count, true)) {
        r->table->failure(state, &sentence);
        nccl_fail(r, "exchange %lld: %s", (long long)number, sentence);
        _exit(1);
    }
    NCCL_MUST(r, download(down + l->begin, r->receive + at, bytes, r->stream));
    NCCL_MUST(r, fill(r->send + at, 0xdd, bytes, r->stream));
}

/* Checks the bytes that arrived in each region, and that no bytes between regions have changed. */
static void check_lane(nccl_rank *r, const plan *p, int exchange, const lane *l)
{
    const char *down = r->host + NCCL_RANK_BYTES / 2;
    int64_t next = l->begin;
    for (int i = 0; i <= l->in.count; i++) {
        const int64_t to = i < l->in.count ? l->in.offsets[i] : l->end;
        while (next < to && down[next] == (char)0xee)
            next++;
        if (next < to)
            nccl_fail(r, "seed %u, exchange %d: byte %lld before region %d was written", p->seed, exchange,
                      (long long)(to - next), i);
        if (i == l->in.count)
            return;
        const int64_t bytes = l->in.list[i].region.bytes, wrong = differences(down + to, bytes, l->in.keys[i]);
        if (wrong)
            nccl_fail(r, "seed %u, exchange %d, from %d, region %d: %lld of %lld bytes differ", p->seed, exchange,
                      l->in.list[i].peer, i, (long long)wrong, (long long)bytes);
        next = to + bytes;
    }
}

/* Posts BATCH exchanges, waits for them in another order, and checks them. */
static void run_batch(nccl_rank *r, void *state, int64_t *posted, int rank, int size, const plan *p)
{
    static lane lanes[BATCH];
    int64_t begin = 0;
    memset(r->host + NCCL_RANK_BYTES / 2, 0x5a, (size_t)(NCCL_RANK_BYTES / 2));
    for (int e = 0; e < BATCH; e++) {
        lane *l = &lanes[e];
        lay_out(p, e, rank, size, true, r->send, begin, &l->out);
        lay_out(p, e, rank, size, false, r->receive, begin, &l->in);
        l->begin = begin;
        l->end = begin = l->out.end > l->in.end ? l->out.end : l->in.end;
        if (l->end > NCCL_RANK_BYTES / 2) {
            nccl_fail(r, "the test needs %lld bytes", (long long)l->end);
            _exit(1);
        }
        post_lane(r, state, *posted + e, l);
    }
    for (int e = BATCH - 1; e >= 0; e--) {
        ith_status status = nccl_wait(r, state, *posted + e);
        if (status)
            nccl_fail(r, "wait: status %d", (int)status);
    }
    *posted += BATCH;
    NCCL_MUST(r, synchronize(r->stream));
    for (int e = 0; e < BATCH; e++)
        check_lane(r, p, e, &lanes[e]);
}

/* Sums numbers of all ranks, by an exchange of host memory. */
static void run_host(nccl_rank *r, void *state, int64_t *posted, int rank, int size)
{
    int64_t mine = rank + 1, theirs[8] = {0}, sum = mine;
    ith_transfer sends[8] = {{0}}, receives[8] = {{0}};
    int count = 0;
    for (int peer = 0; peer < size; peer++) {
        if (peer == rank)
            continue;
        sends[count] = (ith_transfer){peer, {.data = &mine, .count = {1, 1}, .bytes = sizeof mine}};
        receives[count++] = (ith_transfer){peer, {.data = &theirs[peer], .count = {1, 1}, .bytes = sizeof mine}};
    }
    nccl_exchange(r, state, (*posted)++, sends, count, receives, count, false);
    for (int i = 0; i < size; i++)
        sum += theirs[i];
    if (sum != (int64_t)size * (size + 1) / 2)
        nccl_fail(r, "a sum of host memory is %lld", (long long)sum);
}

static const plan plans[] = {{1, 1, 4096, false}, {2, 5, 100000, false}, {3, 1, 1, true}, {4, 4, 1048589, true}};

/* Runs the first `count` plans. */
static void run_plans(nccl_rank *r, void *state, int64_t *posted, int rank, int size, uint32_t salt, int count)
{
    for (int i = 0; i < count; i++) {
        plan p = plans[i];
        p.seed += salt;
        run_batch(r, state, posted, rank, size, &p);
        run_host(r, state, posted, rank, size);
    }
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

static void exchanges(nccl_rank *r)
{
    int64_t posted = 0;
    const double start = nccl_now();
    run_host(r, r->state, &posted, r->rank, r->size);
    run_plans(r, r->state, &posted, r->rank, r->size, 100, 4);
    if (r->rank == 0)
        printf("  %d ranks: %lld exchanges in %.2f s\n", r->size, (long long)posted, nccl_now() - start);
}

/* Exchanges in the sub-group of ranks with the same parity, in the sub-group of a neighbouring pair, and in the whole
 * group. */
static void sub_groups(nccl_rank *r)
{
    void *parts[2] = {NULL, NULL};
    int64_t posted[3] = {0, 0, 0};
    const int members[2][2] = {{r->rank % 2, r->rank % 2 + 2}, {r->rank / 2 * 2, r->rank / 2 * 2 + 1}};
    const int rank_in[2] = {r->rank / 2, r->rank % 2};
    for (int i = 0; i < 2; i++) {
        ith_subgroup part = ITH_SUBGROUP_INIT;
        part.number = i ? 3 + r->rank / 2 : 1 + r->rank % 2;
        part.rank = rank_in[i], part.size = 2, part.members = members[i];
        if (r->table->split(r->state, &part, &parts[i])) {
            nccl_fail(r, "split failed");
            _exit(1);
        }
    }
    run_host(r, r->state, &posted[2], r->rank, r->size); /* all have made their states */
    for (int i = 0; i < 2; i++)
        run_plans(r, parts[i], &posted[i], rank_in[i], 2, 200 + 10 * (uint32_t)i, 3);
    run_plans(r, r->state, &posted[2], r->rank, r->size, 300, 3);
    r->table->close(parts[0]);
    run_plans(r, parts[1], &posted[1], rank_in[1], 2, 400, 2);
    r->table->leave(r->state);
    r->table->close(parts[1]);
    r->table->close(r->state);
    fflush(stdout);
    _exit(r->failures > 0);
}

/* 64 MiB each way between two ranks, several times. */
static void large(nccl_rank *r)
{
    const int64_t bytes = (int64_t)64 << 20;
    const plan p = {5, 1, bytes / 4, false};
    int64_t posted = 0;
    run_batch(r, r->state, &posted, r->rank, r->size, &p);
    write_bytes(r->host, bytes, (uint32_t)r->rank);
    NCCL_MUST(r, upload(r->send, r->host, (size_t)bytes, r->stream));
    NCCL_MUST(r, synchronize(r->stream));
    const double start = nccl_now();
    for (int i = 0; i < 3; i++) {
        const ith_transfer to = nccl_transfer(1 - r->rank, r->send, bytes);
        const ith_transfer from = nccl_transfer(1 - r->rank, r->receive, bytes);
        nccl_exchange(r, r->state, posted++, &to, 1, &from, 1, true);
    }
    const double took = (nccl_now() - start) / 3;
    NCCL_MUST(r, download(r->host, r->receive, (size_t)bytes, r->stream));
    NCCL_MUST(r, synchronize(r->stream));
    const int64_t wrong = differences(r->host, bytes, (uint32_t)(1 - r->rank));
    if (wrong)
        nccl_fail(r, "%lld of 64 Mi bytes differ", (long long)wrong);
    if (r->rank == 0)
        printf("  64 MiB each way: %.1f ms, %.2f GB/s\n", took * 1e3, (double)bytes / took * 1e-9);
}

/* The time of a small exchange, from the post to the end of the wait. */
static void small(nccl_rank *r)
{
    const ith_transfer to = nccl_transfer(1 - r->rank, r->send, 1024);
    const ith_transfer from = nccl_transfer(1 - r->rank, r->receive, 1024);
    int64_t posted = 0;
    for (int i = 0; i < 20; i++)
        nccl_exchange(r, r->state, posted++, &to, 1, &from, 1, true);
    const double start = nccl_now();
    for (int i = 0; i < 100; i++)
        nccl_exchange(r, r->state, posted++, &to, 1, &from, 1, true);
    if (r->rank == 0)
        printf("  1 KiB each way: %.1f us\n", (nccl_now() - start) * 1e4);
}

/* Each rank sends to the next rank and receives from the rank before. Returns the status of the whole exchange. */
static ith_status ring(nccl_rank *r, int64_t number, int64_t sent, int64_t received)
{
    const ith_transfer to = nccl_transfer((r->rank + 1) % r->size, r->send, sent);
    const ith_transfer from = nccl_transfer((r->rank + r->size - 1) % r->size, r->receive, received);
    ith_status status = nccl_post(r, r->state, number, &to, 1, &from, 1, true);
    return status ? status : nccl_wait(r, r->state, number);
}

static void nap(double seconds)
{
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

/* Rank 0 sends more than rank 1 expects. first: in the first exchange. In a later exchange NCCL may have taken the data
 * of rank 0 before rank 1 sees the mistake; then the next exchange of rank 0 fails. */
static void mismatch(nccl_rank *r, bool first)
{
    if (!first && ring(r, 0, 1000, 1000))
        nccl_fail(r, "the exchange before failed");
    const double start = nccl_now();
    ith_status status = ring(r, !first, r->rank == 0 ? 1 << 20 : 1000, 1000);
    if (!status && !first && r->rank == 0)
        status = ring(r, 2, 1000, 1000);
    nccl_expect(r, status, ITH_ERR_ARGUMENT, "rank 0 sends 1 regions of 1048576 bytes", start, 5);
}

static void mismatch_at_first(nccl_rank *r)
{
    mismatch(r, true);
}

static void mismatch_later(nccl_rank *r)
{
    mismatch(r, false);
}

/* Each rank sends `bytes` bytes to each other one, so that all need each other's data. */
static ith_status meet(nccl_rank *r, int64_t number, int64_t bytes)
{
    ith_transfer to[MOST_TRANSFERS], from[MOST_TRANSFERS];
    int count = 0;
    for (int peer = 0; peer < r->size; peer++) {
        if (peer == r->rank)
            continue;
        to[count] = nccl_transfer(peer, r->send, bytes);
        from[count] = nccl_transfer(peer, r->receive + (CUdeviceptr)(count * bytes), bytes);
        count++;
    }
    ith_status status = nccl_post(r, r->state, number, to, count, from, count, true);
    return status ? status : nccl_wait(r, r->state, number);
}

/* Rank 1 dies while the others wait for it: after 0.7 s, before or after its own first exchange. */
static void death(nccl_rank *r, bool first)
{
    if (!first && ring(r, 0, 1000, 1000))
        nccl_fail(r, "the exchange before failed");
    const double start = nccl_now();
    if (r->rank == 1) {
        nap(0.7);
        kill(getpid(), SIGKILL);
    }
    nccl_expect(r, meet(r, !first, 1 << 20), ITH_ERR_ABORTED, "rank 1", start, 4);
}

static void death_at_first(nccl_rank *r)
{
    death(r, true);
}

static void death_later(nccl_rank *r)
{
    death(r, false);
}

/* Rank 1 dies without posting an exchange in which rank 0 sends to it and receives from rank 2. NCCL may have taken the
 * data of rank 0 before, and then rank 0 needs nothing from rank 1: it succeeds, with the data of rank 2, and its next
 * exchange fails. */
static void death_of_receiver(nccl_rank *r)
{
    const int64_t bytes = 1 << 20;
    if (ring(r, 0, 1000, 1000))
        nccl_fail(r, "the exchange before failed");
    const double start = nccl_now();
    if (r->rank == 1) {
        nap(0.7);
        kill(getpid(), SIGKILL);
    }
    write_bytes(r->host, bytes, (uint32_t)r->rank);
    NCCL_MUST(r, upload(r->send, r->host, (size_t)bytes, r->stream));
    ith_status status = ring(r, 1, bytes, bytes);
    if (r->rank == 0 && !status) {
        NCCL_MUST(r, download(r->host, r->receive, (size_t)bytes, r->stream));
        NCCL_MUST(r, synchronize(r->stream));
        if (differences(r->host, bytes, 2))
            nccl_fail(r, "the exchange has succeeded without the data of rank 2");
        status = ring(r, 2, bytes, bytes);
    }
    nccl_expect(r, status, ITH_ERR_ABORTED, "rank 1", start, 4);
}

/* Rank 1 dies after it has posted its part and before the data have moved. */
static void death_in_flight(nccl_rank *r)
{
    const int64_t bytes = (int64_t)64 << 20;
    ith_transfer to = nccl_transfer((r->rank + 1) % r->size, r->send, bytes);
    ith_transfer from = nccl_transfer((r->rank + r->size - 1) % r->size, r->receive, bytes);
    if (ring(r, 0, 1000, 1000))
        nccl_fail(r, "the exchange before failed");
    const double start = nccl_now();
    if (r->rank == 1) {
        nap(0.3); /* the exchange before has ended on rank 0, too */
        nccl_post(r, r->state, 1, &to, 1, &from, 1, true);
        kill(getpid(), SIGKILL);
    }
    ith_status status = nccl_post(r, r->state, 1, &to, 1, &from, 1, true);
    nccl_expect(r, status ? status : nccl_wait(r, r->state, 1), ITH_ERR_ABORTED, "rank 1", start, 4);
}

/* Rank 1 gives no sign of life when the others post the first exchange. */
static void timeout_at_first(nccl_rank *r)
{
    const double start = nccl_now();
    if (r->rank == 1) {
        nap(3.5);
        return;
    }
    nccl_expect(r, ring(r, 0, 1000, 1000), ITH_ERR_TIMEOUT, "for rank 1", start, 3.2);
}

/* Rank 1 ends the group while the device of rank 0 waits for its data. */
static void abortion(nccl_rank *r)
{
    if (ring(r, 0, 1000, 1000))
        nccl_fail(r, "the exchange before failed");
    const double start = nccl_now();
    if (r->rank == 1) {
        nap(0.5);
        r->table->abort(r->state, ITH_ERR_IO, "rank 1 has had enough");
    }
    nccl_expect(r, ring(r, 1, 1000, 1000), ITH_ERR_IO, "had enough", start, 3);
}

static void *abort_soon(void *user)
{
    nccl_rank *r = user;
    nap(0.5);
    r->table->abort(r->state, ITH_ERR_INTERRUPTED, "another thread has stopped rank 0");
    return NULL;
}

/* Another thread of rank 0 ends the group while its first thread waits for rank 1, in its first exchange or later. */
static void stop_from_thread(nccl_rank *r, bool first)
{
    pthread_t thread;
    if (!first && ring(r, 0, 1000, 1000))
        nccl_fail(r, "the exchange before failed");
    const double start = nccl_now();
    if (r->rank == 0 && pthread_create(&thread, NULL, abort_soon, r))
        nccl_fail(r, "there is no thread");
    if (r->rank == 1)
        nap(0.7);
    nccl_expect(r, ring(r, !first, 1000, 1000), ITH_ERR_INTERRUPTED, "another thread", start, 3);
    if (r->rank == 0)
        pthread_join(thread, NULL);
}

static void stop_at_first(nccl_rank *r)
{
    stop_from_thread(r, true);
}

static void stop_later(nccl_rank *r)
{
    stop_from_thread(r, false);
}

/* Rank 1 leaves while rank 0 waits for it. Data that it sent before still arrive. */
static void leaver(nccl_rank *r)
{
    if (ring(r, 0, 1 << 20, 1 << 20))
        nccl_fail(r, "the exchange before failed");
    const double start = nccl_now();
    if (r->rank == 1)
        return;
    nccl_expect(r, ring(r, 1, 1000, 1000), ITH_ERR_ABORTED, "rank 1", start, 3);
}

typedef struct test_case {
    const char *name;
    int ranks, dead;
    double seconds;
    void (*fn)(nccl_rank *r);
} test_case;

static const test_case cases[] = {
    {"exchanges1", 1, -1, 20, exchanges},
    {"exchanges2", 2, -1, 20, exchanges},
    {"sub_groups4", 4, -1, 20, sub_groups},
    {"large", 2, -1, 20, large},
    {"small", 2, -1, 20, small},
    {"mismatch_at_first", 2, -1, 20, mismatch_at_first},
    {"mismatch_later", 2, -1, 20, mismatch_later},
    {"death_at_first", 3, 1, 20, death_at_first},
    {"death_later", 3, 1, 20, death_later},
    {"death_of_receiver", 3, 1, 20, death_of_receiver},
    {"death_in_flight", 2, 1, 20, death_in_flight},
    {"timeout_at_first", 2, -1, 2, timeout_at_first},
    {"abortion", 2, -1, 20, abortion},
    {"stop_at_first", 2, -1, 20, stop_at_first},
    {"stop_later", 2, -1, 20, stop_later},
    {"leaver", 2, -1, 20, leaver},
};

static bool is_wanted(const char *name, int count, char **names)
{
    for (int i = 1; i < count; i++)
        if (!strcmp(names[i], name))
            return true;
    return count < 2;
}

int main(int argc, char **argv)
{
    int failed = 0;
    if (!nccl_has_gpu())
        return 77;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const test_case *c = &cases[i];
        if (!is_wanted(c->name, argc, argv))
            continue;
        const double start = nccl_now();
        int failures = nccl_run(c->ranks, c->seconds, c->dead, c->fn);
        printf("%-18s %s, %.1f s\n", c->name, failures ? "FAILED" : "passed", nccl_now() - start);
        failed += failures > 0;
        if (failures && c->fn == exchanges)
            break; /* later cases would fail too, and slowly */
    }
    printf(failed ? "FAILED: %d cases\n" : "passed\n", failed);
    return failed > 0;
}
