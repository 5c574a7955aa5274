/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the schedules of all ranks together, on symbols instead of numbers: for each place in memory the test keeps
 * which row of which head lies there. A step may use only rows that are there, and only memory that no exchange under
 * way writes to. In the end every query has met every key once, and its output lies with its owner. */
#include "attention/schedule/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/in_range.h"
#include "support/random.h"

enum { RANKS = 8, HEADS = 36, ROWS = 40, MOVES = 32, POSTS = 512 };

/* The transfers of a POST step, copied when the walk of its rank came to it. */
typedef struct posted {
    int sends, receives;
    ith_move send[MOVES], receive[MOVES]; /* the moves that are not empty */
} posted;

typedef struct rank_state {
    ith_schedule schedule;
    ith_step step; /* the next step */
    bool done;
    int16_t memory[ITH_PLACES][ITH_TENSORS][HEADS][ROWS]; /* the row of the sequence that lies there; -1: none */
    bool met[HEADS][ROWS][ROWS];                          /* query head, query, key */
    posted posts[2][POSTS];                               /* the posts on the ulysses axis, and on the ring axis */
    int posted[2];
    int under_way[ITH_EXCHANGES]; /* number of the POST; -1: none */
} rank_state;

static rank_state *group;
static ith_attn_setting setting;

static int axis_of(int exchange)
{
    return exchange == ITH_EXCHANGE_HOP;
}

/* The rank of a peer on an axis. */
static int rank_of(int rank, int axis, int peer)
{
    return axis ? peer * setting.ulysses + rank % setting.ulysses : rank / setting.ulysses * setting.ulysses + peer;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static ith_row_range share_of(int64_t length, int rank)
{
    ith_row_range span;
    ith_share(length, setting.ulysses * setting.ring, rank, &span.begin, &span.rows);
    return span;
}

static void hold(rank_state *r, const ith_move *m)
{
    for (int64_t n = 0; n < m->heads; n++)
        for (int64_t i = 0; i < m->rows.rows; i++)
            r->memory[m->place][m->tensor][m->first + n][m->at + i] = (int16_t)(m->rows.begin + i);
}

static void check_held(const rank_state *r, const ith_move *m)
{
    for (int64_t n = 0; n < m->heads; n++)
        for (int64_t i = 0; i < m->rows.rows; i++)
            assert_int_equal(r->memory[m->place][m->tensor][m->first + n][m->at + i], m->rows.begin + i);
}

static bool overlap(const ith_move *a, const ith_move *b)
{
    return a->place == b->place && a->tensor == b->tensor && a->first < b->first + b->heads &&
           b->first < a->first + a->heads && a->at < b->at + b->rows.rows && b->at < a->at + a->rows.rows;
}

/* Checks that no exchange under way writes these rows and, if they will be written, that none reads them. */
static void check_free(const rank_state *r, const ith_move *m, bool written)
{
    for (int e = 0; e < ITH_EXCHANGES; e++) {
        if (r->under_way[e] < 0)
            continue;
        const posted *p = &r->posts[axis_of(e)][r->under_way[e]];
        for (int i = 0; i < p->receives; i++)
            assert_false(overlap(m, &p->receive[i]));
        for (int i = 0; written && i < p->sends; i++)
            assert_false(overlap(m, &p->send[i]));
    }
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

static void post(rank_state *r)
{
    int axis = axis_of(r->step.exchange);
    posted p = {0};
    assert_true(r->under_way[r->step.exchange] < 0 && r->posted[axis] < POSTS);
    for (int i = 0; i < r->step.moves; i++)
        for (int sent = 0; sent < 2; sent++) {
            ith_move m = ith_schedule_move(&r->schedule, &r->step, sent, i);
            if (m.heads == 0 || m.rows.rows == 0)
                continue;
            check_free(r, &m, !sent);
            if (sent)
                check_held(r, &m);
            /* in a mixed exchange, the chunk's place is memory of other ranks, into which nothing may arrive */
            if (!sent && axis && setting.exchange == ITH_EXCHANGE_MIXED)
                assert_true(m.place >= ITH_PLACE_TRAVELLING);
            assert_true(p.sends < MOVES && p.receives < MOVES);
            *(sent ? &p.send[p.sends++] : &p.receive[p.receives++]) = m;
        }
    r->posts[axis][r->posted[axis]] = p;
    r->under_way[r->step.exchange] = r->posted[axis]++;
}

/* The i-th move of a POST that goes to rank `to` of the axis; NULL if there are fewer. */
static const ith_move *sent_to(const posted *p, int to, int i)
{
    for (int n = 0; n < p->sends; n++)
        if (p->send[n].peer == to && i-- == 0)
            return &p->send[n];
    return NULL;
}

/* Takes a rank through the WAIT of its step. Returns false if a peer has not come to this exchange yet. */
static bool wait_for(rank_state *r, int rank)
{
    int number = r->under_way[r->step.exchange], axis = axis_of(r->step.exchange);
    int size = axis ? setting.ring : setting.ulysses, self = axis ? rank / setting.ulysses : rank % setting.ulysses;
    if (number < 0)
        return true;
    for (int peer = 0; peer < size; peer++)
        if (group[rank_of(rank, axis, peer)].posted[axis] <= number)
            return false;
    const posted *own = &r->posts[axis][number];
    int taken[RANKS] = {0};
    for (int i = 0; i < own->receives; i++) {
        const ith_move *in = &own->receive[i];
        const posted *peers = &group[rank_of(rank, axis, in->peer)].posts[axis][number];
        const ith_move *out = sent_to(peers, self, taken[in->peer]++);
        assert_non_null(out);
        assert_true(out->tensor == in->tensor && out->first == in->first && out->heads == in->heads);
        assert_true(out->rows.begin == in->rows.begin && out->rows.rows == in->rows.rows);
        hold(r, in);
    }
    for (int peer = 0; peer < size; peer++)
        assert_null(sent_to(&group[rank_of(rank, axis, peer)].posts[axis][number], self, taken[peer]));
    r->under_way[r->step.exchange] = -1;
    return true;
}

static void compute(rank_state *r)
{
    const ith_step *s = &r->step;
    const ith_heads *h = &s->heads;
    int64_t per_kv_head = setting.problem.heads / setting.problem.kv_heads;
    for (ith_attn_tensor t = ITH_TENSOR_Q; t < ITH_TENSORS; t++) {
        bool kv = ith_tensor_is_kv(t), written = t >= ITH_TENSOR_O;
        ith_move m = {.tensor = t,
                      .place = kv ? s->kv_place : s->q_place,
                      .first = kv ? h->kv_first : h->first,
                      .heads = kv ? h->kv_heads : h->count,
                      .rows = kv ? s->kv : s->q};
        check_free(r, &m, written);
        if (!written)
            check_held(r, &m);
        else if (s->last)
            hold(r, &m);
    }
    for (int64_t n = h->first; n < h->first + h->count; n++) {
        assert_true(in_range(n / per_kv_head, h->kv_first, h->kv_first + h->kv_heads - 1));
        for (int64_t q = s->q.begin; q < s->q.begin + s->q.rows; q++) {
            int64_t before = 0, after = 0;
            for (int64_t key = 0; key < setting.problem.kv_len; key++)
                before += r->met[n][q][key];
            for (int64_t key = s->kv.begin; key < s->kv.begin + s->kv.rows; key++) {
                assert_false(r->met[n][q][key]);
                r->met[n][q][key] = true;
            }
            for (int64_t key = 0; key < setting.problem.kv_len; key++)
                after += r->met[n][q][key];
            assert_true(!s->first || before == 0);
            assert_true(!s->last || after == setting.problem.kv_len);
        }
    }
}

/* Takes the next step of a rank. Returns false if the rank has to wait. */
static bool take_step(rank_state *r, int rank)
{
    if (r->step.kind == ITH_STEP_WAIT && !wait_for(r, rank))
        return false;
    if (r->step.kind == ITH_STEP_POST)
        post(r);
    for (int e = 0; e < ITH_EXCHANGES && setting.unhidden && r->step.kind == ITH_STEP_COMPUTE; e++)
        assert_int_equal(r->under_way[e], -1);
    if (r->step.kind == ITH_STEP_COMPUTE)
        compute(r);
    r->done = !ith_schedule_next(&r->schedule, &r->step);
    return true;
}

/* ---- Whole schedules ------------------------------------------------------------------------------------------- */

static void begin_rank(int rank)
{
    const ith_attn_problem *p = &setting.problem;
    rank_state *r = &group[rank];
    memset(r, 0, sizeof *r);
    memset(r->memory, -1, sizeof r->memory);
    for (ith_attn_tensor t = ITH_TENSOR_Q; t <= ITH_TENSOR_V; t++) {
        bool kv = t != ITH_TENSOR_Q;
        ith_move own = {.tensor = t, .place = ITH_PLACE_CALLER, .heads = p->batch * (kv ? p->kv_heads : p->heads)};
        own.rows = kv && p->replicated_kv ? (ith_row_range){0, p->kv_len} : share_of(kv ? p->kv_len : p->q_len, rank);
        hold(r, &own);
    }
    for (int e = 0; e < ITH_EXCHANGES; e++)
        r->under_way[e] = -1;
    r->schedule = ith_schedule_of(&setting, rank);
    r->done = !ith_schedule_next(&r->schedule, &r->step);
}

static void end_rank(int rank)
{
    rank_state *r = &group[rank];
    for (int e = 0; e < ITH_EXCHANGES; e++)
        assert_int_equal(r->under_way[e], -1);
    for (ith_attn_tensor t = ITH_TENSOR_O; t < ITH_TENSORS; t++) {
        ith_move own = {.tensor = t, .heads = setting.problem.batch * setting.problem.heads};
        own.rows = share_of(setting.problem.q_len, rank);
        check_held(r, &own);
    }
}

/* Runs all schedules to their ends: ranks in random order take a few steps each. */
static void run_all(uint64_t *seed)
{
    int ranks = setting.ulysses * setting.ring, left = ranks;
    for (int rank = 0; rank < ranks; rank++) {
        begin_rank(rank);
        left -= group[rank].done;
    }
    for (int idle = 0; left > 0;) {
        int rank = (int)random_below(seed, (uint32_t)ranks);
        bool moved = false;
        for (uint32_t steps = 1 + random_below(seed, 9); steps > 0 && !group[rank].done; steps--) {
            if (!take_step(&group[rank], rank))
                break;
            moved = true;
            left -= group[rank].done;
        }
        idle = moved ? 0 : idle + 1;
        assert_true(idle < 1000 * RANKS); /* otherwise they wait for one another */
    }
    for (int rank = 0; rank < ranks; rank++)
        end_rank(rank);
}

static void draw_setting(uint64_t *seed)
{
    static const int meshes[][2] = {{1, 1}, {2, 1}, {3, 1}, {5, 1}, {1, 2}, {1, 3},
                                    {1, 4}, {1, 7}, {2, 2}, {2, 3}, {3, 2}, {2, 4}};
    const int *mesh = meshes[random_below(seed, sizeof meshes / sizeof *meshes)];
    ith_attn_problem *p = &setting.problem;
    setting = (ith_attn_setting){.ulysses = mesh[0], .ring = mesh[1], .element_bytes = 4};
    p->batch = random_between(seed, 1, 3);
    p->kv_heads = random_between(seed, 1, 4);
    p->heads = p->kv_heads * random_between(seed, 1, 3);
    p->head_dim = 8;
    p->q_len = random_between(seed, 0, ROWS - 1);
    p->kv_len = random_between(seed, 0, ROWS - 1);
    p->replicated_kv = random_below(seed, 8) == 0;
    bool alone = mesh[0] * mesh[1] == 1 || p->replicated_kv;
    setting.strategy = alone ? ITH_STRATEGY_SINGLE : ITH_STRATEGY_ULYSSES_RING;
    if (!alone && mesh[0] == 1)
        setting.strategy = ITH_STRATEGY_RING;
    if (!alone && mesh[1] == 1)
        setting.strategy = ITH_STRATEGY_ULYSSES;
    setting.direction = random_below(seed, 2) ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
    setting.softmax = random_below(seed, 2) ? ITH_SOFTMAX_ONLINE : ITH_SOFTMAX_FIXED_M;
    setting.chunks = (int)random_between(seed, 1, 7);
    setting.exchange = mesh[0] > 1 && random_below(seed, 2) ? ITH_EXCHANGE_MIXED : ITH_EXCHANGE_COPY;
    setting.folded = mesh[0] == 1 || random_below(seed, 2);
    setting.unhidden = random_below(seed, 3) == 0;
}

static void schedules_fit_together(void **state)
{
    (void)state;
    uint64_t seed = 11;
    group = malloc(RANKS * sizeof *group);
    assert_non_null(group);
    for (int n = 0; n < 1000; n++) {
        draw_setting(&seed);
        run_all(&seed);
    }
    free(group);
}

/* The schedule of any one of very many ranks can be walked without memory for each rank, and a hop takes no longer than
 * in a small ring. With even shares a formula gives the bytes (docs/attention.md). */
static void a_rank_of_a_hundred_thousand(void **state)
{
    (void)state;
    int64_t U = 8, R = 12500, P = U * R, rows = 6, computed = 0;
    setting = (ith_attn_setting){.ulysses = (int)U,
                                 .ring = (int)R,
                                 .strategy = ITH_STRATEGY_ULYSSES_RING,
                                 .direction = ITH_DIRECTION_UNI,
                                 .chunks = 2,
                                 .folded = true,
                                 .element_bytes = 2,
                                 .problem = {.batch = 1, .heads = 80, .kv_heads = 16, .head_dim = 128}};
    setting.problem.q_len = setting.problem.kv_len = rows * P;
    ith_schedule schedule = ith_schedule_of(&setting, 54321);
    for (ith_step step; ith_schedule_next(&schedule, &step);)
        if (step.kind == ITH_STEP_COMPUTE)
            computed += step.heads.count * step.q.rows * step.kv.rows;
    assert_int_equal(computed, 80 * rows * P * rows);
    int64_t share = rows * 80 * 128 * 2; /* bytes of a rank's q; k and v have a fifth of them each */
    setting.exchange = ITH_EXCHANGE_COPY;
    assert_int_equal(ith_schedule_sent_bytes(&setting, 54321), share * 12 / 5 * (U - 1) / U + share * 2 / 5 * (R - 1));
    setting.exchange = ITH_EXCHANGE_MIXED;
    assert_int_equal(ith_schedule_sent_bytes(&setting, 54321), share * 12 / 5 * (U - 1) / U + share * 2 / 5 * (R - 1));
    setting.exchange = ITH_EXCHANGE_IN_PLACE;
    assert_int_equal(ith_schedule_sent_bytes(&setting, 54321), share * 12 / 5 * (U - 1) / U + share * 2 / 5 * (R - 1));
}

/* A problem without queries may have any number of heads, because it takes no memory. So its schedule must not loop
 * over them. */
static void without_queries_there_are_no_steps(void **state)
{
    (void)state;
    static const ith_strategy strategies[] = {ITH_STRATEGY_SINGLE, ITH_STRATEGY_ULYSSES, ITH_STRATEGY_RING,
                                              ITH_STRATEGY_ULYSSES_RING};
    for (size_t i = 0; i < 2 * sizeof strategies / sizeof *strategies; i++) {
        ith_step step;
        setting =
            (ith_attn_setting){.ulysses = i / 2 % 2 ? 4 : 1,
                               .ring = i / 2 > 1 ? 3 : 1,
                               .strategy = strategies[i / 2],
                               .direction = ITH_DIRECTION_UNI,
                               .softmax = ITH_SOFTMAX_FIXED_M,
                               .chunks = 2,
                               .folded = i % 2,
                               .element_bytes = 2,
                               .problem = {.batch = INT32_MAX, .heads = 64, .kv_heads = 1, .head_dim = 1, .kv_len = 1}};
        ith_schedule schedule = ith_schedule_of(&setting, 0);
        assert_false(ith_schedule_next(&schedule, &step));
        assert_int_equal(ith_schedule_sent_bytes(&setting, 0), 0);
    }
}

/* Hops are counted as alike at the beginning of a hop, behind the wait for the hop before, and their number is even. */
static void check_alike(const ith_schedule *schedule, const ith_step *step)
{
    const int alike = ith_schedule_hops_alike(schedule);
    assert_true(alike >= 0 && alike % 2 == 0);
    assert_true(alike == 0 || (step->kind == ITH_STEP_WAIT && step->exchange == ITH_EXCHANGE_HOP));
}

/* Adds up the bytes that a rank sends, hop by hop. */
static int64_t sent_hop_by_hop(int rank)
{
    const ith_attn_problem *p = &setting.problem;
    const bool in_place = setting.exchange == ITH_EXCHANGE_IN_PLACE;
    ith_schedule schedule = ith_schedule_of(&setting, rank);
    int64_t sent = 0;
    for (ith_step step; ith_schedule_next(&schedule, &step);) {
        bool hop = step.exchange == ITH_EXCHANGE_HOP;
        check_alike(&schedule, &step);
        for (int i = 0; step.kind == ITH_STEP_POST && !(in_place && hop) && i < step.moves; i++) {
            ith_move move = ith_schedule_move(&schedule, &step, true, i);
            if (move.tensor != ITH_TENSOR_LSE && (hop || move.peer != schedule.ulysses_index))
                sent += move.rows.rows * move.heads * p->head_dim * setting.element_bytes;
        }
        if (in_place && step.kind == ITH_STEP_COMPUTE && step.shard != schedule.ring_index)
            sent += 2 * ith_schedule_shard(&setting, p->kv_len, schedule.ring_index).rows * step.heads.kv_heads *
                    p->head_dim * setting.element_bytes;
    }
    return sent;
}

/* ith_schedule_sent_bytes counts equal hops and equal batch entries once and multiplies. Here shares are uneven, and
 * rings so long that it skips hops; its count must be the sum over all hops and entries. */
static void bytes_of_long_rings(void **state)
{
    (void)state;
    static const ith_exchange_mode modes[] = {ITH_EXCHANGE_COPY, ITH_EXCHANGE_IN_PLACE, ITH_EXCHANGE_MIXED};
    uint64_t seed = 5;
    for (int n = 0; n < 400; n++) {
        const int ulysses = (int)random_below(&seed, 3) + 1, ring = (int)random_below(&seed, 90) + 1;
        setting = (ith_attn_setting){.ulysses = ulysses,
                                     .ring = ring,
                                     .strategy = ITH_STRATEGY_ULYSSES_RING,
                                     .direction = n % 2 ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI,
                                     .chunks = (int)random_below(&seed, 3) + 1,
                                     .folded = n % 7 > 0,
                                     .exchange = modes[n % 3],
                                     .unhidden = n % 5 == 0,
                                     .element_bytes = 2,
                                     .problem = {.batch = 1 + n % 4, .heads = 6, .kv_heads = 6, .head_dim = 8}};
        setting.problem.q_len = (int64_t)random_below(&seed, 900) + 1;
        setting.problem.kv_len = (int64_t)random_below(&seed, 900) + 1;
        for (int rank = 0; rank < ulysses * ring; rank += 1 + ring / 9)
            assert_int_equal(ith_schedule_sent_bytes(&setting, rank), sent_hop_by_hop(rank));
    }
}

/* If all ranks of a ulysses axis can have whole kv heads, no kv head belongs to two ranks or to two chunks. */
static void kv_heads_are_sent_once(void **state)
{
    (void)state;
    for (int ulysses = 2; ulysses <= 4; ulysses++)
        for (int64_t each = 1; each <= 3; each++)
            for (int per_key = 1; per_key <= 4; per_key++)
                for (int chunks = 1; chunks <= 5; chunks++) {
                    int64_t sent = 0;
                    setting = (ith_attn_setting){.ulysses = ulysses, .ring = 1, .chunks = chunks, .folded = true};
                    setting.problem = (ith_attn_problem){.batch = 1, .kv_heads = ulysses * each, .q_len = 1};
                    setting.problem.heads = setting.problem.kv_heads * per_key;
                    for (int chunk = 0; chunk < ith_chunk_count(&setting); chunk++)
                        for (int rank = 0; rank < ulysses; rank++)
                            sent += ith_chunk_heads(&setting, chunk, rank).kv_heads;
                    assert_int_equal(sent, setting.problem.kv_heads);
                }
}

/* Where no heads are exchanged, one chunk holds all heads of all batch entries. */
static void a_ring_has_one_chunk(void **state)
{
    (void)state;
    for (int folded = 0; folded < 2; folded++) {
        setting = (ith_attn_setting){.ulysses = 1, .ring = 4, .chunks = 3, .folded = folded};
        setting.problem = (ith_attn_problem){.batch = 3, .heads = 8, .kv_heads = 8, .q_len = 5};
        assert_int_equal(ith_chunk_count(&setting), 1);
        assert_int_equal(ith_chunk_heads(&setting, 0, 0).count, 24);
    }
}

/* Without queries the batch may be larger than any number of chunks. Ranks that each hold all keys need no exchange. */
static void nothing_to_exchange(void **state)
{
    (void)state;
    setting = (ith_attn_setting){.ulysses = 4, .ring = 1, .chunks = 1, .strategy = ITH_STRATEGY_SINGLE};
    setting.problem = (ith_attn_problem){.batch = (int64_t)1 << 33, .heads = 8, .kv_heads = 8};
    assert_int_equal(ith_chunk_count(&setting), 1);
    assert_int_not_equal(ith_strategy_find(ITH_STRATEGY_SINGLE)->applicable(&setting), ITH_OK);
    setting.problem.replicated_kv = true;
    assert_int_equal(ith_strategy_find(ITH_STRATEGY_SINGLE)->applicable(&setting), ITH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_long_rings),          cmocka_unit_test(schedules_fit_together),
        cmocka_unit_test(a_rank_of_a_hundred_thousand), cmocka_unit_test(without_queries_there_are_no_steps),
        cmocka_unit_test(kv_heads_are_sent_once),       cmocka_unit_test(a_ring_has_one_chunk),
        cmocka_unit_test(nothing_to_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
