/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies ulysses, ring and ulysses_ring: ulysses inside, ring outside (arXiv:2405.07719). Ranks on one ulysses axis
 * exchange sequence shards for head shards, so that together they hold a longer shard of the sequence. These longer
 * shards of k and v travel along the ring. At the end the results return. With a ring of length 1 this is ulysses
 * (arXiv:2309.14509), with a ulysses axis of length 1 it is ring (arXiv:2310.01889).
 *
 *     post the inputs of chunk 0
 *     for each chunk c:
 *         wait for the inputs of c; wait for the outputs whose buffer chunk c + 1 needs; post the inputs of c + 1
 *         for each hop h = 0, 1, ..., R - 1:
 *             post: the shards of hop h leave, the shards of hop h + 1 come
 *             compute with the shards of hop h
 *             wait
 *         post the outputs of c
 *     wait for all outputs
 *
 * So the inputs of chunk c + 1 and the outputs of chunk c - 1 travel while chunk c is computed. If the setting is
 * `unhidden`, a rank waits for every exchange right after its post, and posts a hop after it has computed.
 *
 * uni: at hop h rank r has the shard of rank r - h (mod R), and sends it to rank r + 1. The last hop sends nothing.
 *
 * bidir: ranks form a line (maxdiffusion #430). At hop h rank r has the shards of ranks r - h and r + h, as far as they
 * exist, and sends the first to rank r + 1 and the second to r - 1. No rank receives a shard twice, and no shard goes
 * around the ring.
 *
 * The order in which partial results are added depends on the rank alone. */
#include "schedule.h"

#include "../../base/size.h"

/* The sides from which shards come along a ring. At hop 0 a rank's own shard counts as coming from the left. */
enum { FROM_LEFT, FROM_RIGHT };
/* The stages of a chunk, in their order; a stage has one step or none. The stages from POST_HOP to WAIT_HOP are
 * repeated for each hop. */
enum {
    WAIT_CHUNK,    /* waits for the inputs of the chunk */
    WAIT_BUFFER,   /* waits for the earlier outputs whose buffer the next chunk needs */
    POST_INPUTS,   /* posts the inputs of the next chunk */
    WAIT_INPUTS,   /* if `unhidden`: waits for them at once, so WAIT_CHUNK and WAIT_BUFFER have no steps */
    OFFSETS,       /* computes the offsets of fixed_m */
    POST_HOP,      /* posts the transfers of the shards of this hop, which bring the shards of the next hop */
    COMPUTE_LEFT,  /* computes with the shard from the left */
    COMPUTE_RIGHT, /* computes with the shard from the right, if there is one (bidir) */
    POST_HOP_LATE, /* if `unhidden`: posts the transfers now, instead of in POST_HOP */
    WAIT_HOP,      /* waits for these transfers */
    POST_OUTPUTS,  /* posts the outputs of the chunk */
    WAIT_OUTPUTS   /* if `unhidden`: waits for them at once */
};

/* ---- Shards ---------------------------------------------------------------------------------------------------- */

static bool exchanges_heads(const ith_schedule *s)
{
    return s->setting->ulysses > 1;
}

/* The ring index of the shard that this rank has at a hop, from the left or the right neighbour (`side`); -1: none. */
static int shard_at(const ith_schedule *s, int side, int hop)
{
    int ring = s->setting->ring, index = side == FROM_LEFT ? s->ring_index - hop : s->ring_index + hop;
    if (s->setting->direction == ITH_DIRECTION_UNI)
        return side == FROM_LEFT && hop < ring ? (index + ring) % ring : -1;
    return index >= 0 && index < ring ? index : -1;
}

/* The place (name of a buffer) of the shard that this rank has at a hop. The next shard arrives while this one is used
 * and sent on, so each side has two places. If heads are exchanged, the second place on the left is the chunk's own
 * buffer, whose shard is no longer needed by then. This does not hold for the exchange MIXED, where the chunk lies in
 * the tensors of other ranks. */
static int place_at(const ith_schedule *s, int chunk, int side, int hop)
{
    bool reused = s->setting->exchange != ITH_EXCHANGE_MIXED && side == FROM_LEFT && hop % 2 == 0;
    if (exchanges_heads(s) && (hop == 0 || reused))
        return ITH_PLACE_CHUNK + chunk % s->buffers;
    return hop == 0 ? ITH_PLACE_CALLER : ITH_PLACE_TRAVELLING + 2 * side + (hop - 1) % 2;
}

/* ---- Moves ----------------------------------------------------------------------------------------------------- */

/* One part of the all-to-all exchange of a chunk: the rows that go to one rank, or come from it. Inputs (q, k, v) go
 * from the callers' tensors, which hold a rank's rows of all heads, to the chunk's buffers, which hold all rows of a
 * rank's heads. Outputs (o, lse) go back from the buffers to the callers' tensors. */
static ith_move all_to_all_move(const ith_schedule *s, const ith_step *step, bool sent, int index)
{
    const ith_attn_setting *set = s->setting;
    const ith_attn_problem *p = &set->problem;
    bool at_caller = sent != step->outputs;
    int peer = index % set->ulysses, owner = at_caller ? s->ulysses_index : peer;
    ith_move move = {
        .tensor = (ith_attn_tensor)((step->outputs ? (int)ITH_TENSOR_O : (int)ITH_TENSOR_Q) + index / set->ulysses),
        .peer = peer,
        .place = at_caller ? ITH_PLACE_CALLER : ITH_PLACE_CHUNK + step->chunk % s->buffers};
    ith_heads heads = ith_chunk_heads(set, step->chunk, at_caller ? peer : s->ulysses_index);
    bool kv = ith_tensor_is_kv(move.tensor);
    move.first = kv ? heads.kv_first : heads.first;
    move.heads = kv ? heads.kv_heads : heads.count;
    int64_t length = kv ? p->kv_len : p->q_len;
    ith_share(length, set->ulysses * set->ring, s->ring_index * set->ulysses + owner, &move.rows.begin,
              &move.rows.rows);
    move.at = at_caller ? 0 : move.rows.begin - ith_schedule_shard(set, length, s->ring_index).begin;
    return move;
}

/* One part of the exchange of a hop: k or v of a shard that travels along the ring. A shard from the left is sent on to
 * the right, and a shard from the right to the left. */
static ith_move hop_move(const ith_schedule *s, const ith_step *step, bool sent, int index)
{
    int ring = s->setting->ring, side = index / 2, hop = sent ? step->hop : step->hop + 1;
    int peer = s->ring_index + (sent == (side == FROM_LEFT) ? 1 : -1), shard = shard_at(s, side, hop);
    bool wraps = s->setting->direction == ITH_DIRECTION_UNI;
    if (shard < 0 || (!wraps && (peer < 0 || peer >= ring)))
        return (ith_move){0};
    ith_heads heads = ith_chunk_heads(s->setting, step->chunk, s->ulysses_index);
    return (ith_move){.tensor = index % 2 ? ITH_TENSOR_V : ITH_TENSOR_K,
                      .peer = (peer + ring) % ring,
                      .place = place_at(s, step->chunk, side, hop),
                      .first = heads.kv_first,
                      .heads = heads.kv_heads,
                      .rows = ith_schedule_shard(s->setting, s->setting->problem.kv_len, shard)};
}

static ith_move move(const ith_schedule *s, const ith_step *step, bool sent, int index)
{
    return step->exchange == ITH_EXCHANGE_HOP ? hop_move(s, step, sent, index) : all_to_all_move(s, step, sent, index);
}

/* All moves of one tensor in the all-to-all exchange of a chunk. At the caller lie the rank's rows of the heads of all
 * ranks; in the buffers, all rows of the rank's heads. */
static ith_move_group all_to_all_group(const ith_schedule *s, const ith_step *step, bool sent, int index)
{
    const ith_attn_setting *set = s->setting;
    const ith_move own = all_to_all_move(s, step, sent, index * set->ulysses + s->ulysses_index);
    const bool kv = ith_tensor_is_kv(own.tensor);
    const int64_t length = kv ? set->problem.kv_len : set->problem.q_len;
    const int64_t per_key = set->problem.heads / set->problem.kv_heads;
    ith_move_group group = {.tensor = own.tensor, .place = own.place, .kept = own.rows.rows * own.heads};
    if (own.place == ITH_PLACE_CALLER) {
        const ith_heads_run all = ith_chunk_run(set, step->chunk, 0, set->ulysses);
        group.vectors = own.rows.rows * (kv ? ith_run_groups(&all, per_key) : ith_run_heads(&all));
        if (own.rows.rows) /* the ranks are cut where their query heads are cut, also for k and v */
            group.regions = own.tensor == ITH_TENSOR_LSE ? all.ranks : ith_run_groups(&all, set->problem.heads);
    } else {
        const int64_t rows = ith_schedule_shard(set, length, s->ring_index).rows;
        ith_move one_row = own; /* as from each rank with rows */
        one_row.rows.rows = 1;
        group.vectors = group.extent = rows * own.heads;
        group.regions = ith_min64(set->ulysses, rows) * ith_move_regions(set, &one_row);
    }
    return group;
}

static ith_move_group group(const ith_schedule *s, const ith_step *step, bool sent, int index)
{
    if (step->exchange != ITH_EXCHANGE_HOP)
        return all_to_all_group(s, step, sent, index);
    const ith_move one = hop_move(s, step, sent, index);
    return (ith_move_group){.tensor = one.tensor,
                            .place = one.place,
                            .vectors = one.rows.rows * one.heads,
                            .regions = ith_move_regions(s->setting, &one),
                            .extent = one.place == ITH_PLACE_CALLER ? 0 : (one.at + one.rows.rows) * one.heads};
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

/* The functions that follow, up to `describe`, fill in one step of the schedule. They return true, or false if there is
 * no such step. */

static bool wait_for(ith_step *step, int exchange)
{
    step->kind = ITH_STEP_WAIT;
    step->exchange = exchange;
    return true;
}

static bool post_chunk(const ith_schedule *s, ith_step *step, int chunk, bool outputs)
{
    step->kind = ITH_STEP_POST;
    step->chunk = chunk;
    step->exchange = chunk % s->buffers;
    step->outputs = outputs;
    step->groups = outputs ? 2 : 3; /* outputs are o and lse; inputs are q, k and v */
    step->moves = step->groups * s->setting->ulysses;
    return true;
}

static bool post_hop(const ith_schedule *s, ith_step *step)
{
    step->kind = ITH_STEP_POST;
    step->exchange = ITH_EXCHANGE_HOP;
    /* k and v travel from one neighbour (uni) or from both (bidir) */
    step->moves = step->groups = s->setting->direction == ITH_DIRECTION_UNI ? 2 : 4;
    return true;
}

/* Fills in an OFFSETS or COMPUTE step with the shard that comes from `side` at this hop. */
static bool with_shard(const ith_schedule *s, ith_step *step, ith_step_kind kind, int side)
{
    const ith_attn_problem *p = &s->setting->problem;
    int hop = step->hop, shard = shard_at(s, side, hop);
    if (shard < 0)
        return false;
    bool other_side = side == FROM_LEFT && hop > 0 && shard_at(s, FROM_RIGHT, hop) >= 0;
    step->kind = kind;
    step->heads = ith_chunk_heads(s->setting, step->chunk, s->ulysses_index);
    step->q = ith_schedule_shard(s->setting, p->q_len, s->ring_index);
    step->kv = ith_schedule_shard(s->setting, p->kv_len, shard);
    step->q_place = place_at(s, step->chunk, FROM_LEFT, 0);
    step->kv_place = place_at(s, step->chunk, side, hop);
    step->shard = shard;
    step->first = hop == 0;
    step->last = !other_side && shard_at(s, FROM_LEFT, hop + 1) < 0 && shard_at(s, FROM_RIGHT, hop + 1) < 0;
    return true;
}

/* Fills in the step of the current chunk, hop and stage; returns false if there is none. The walk begins at chunk -1,
 * which only posts the inputs of chunk 0. It ends beyond the last chunk, where it waits for outputs. */
static bool describe(const ith_schedule *s, ith_step *step)
{
    int chunk = s->chunk, next = chunk + 1;
    bool present = chunk >= 0 && chunk < s->chunks, exchanged = exchanges_heads(s);
    bool travels = present && s->hop + 1 < s->setting->ring; /* whether this hop has transfers: the last one has none */
    bool at_once = s->setting->unhidden;                     /* whether a rank waits right after each post */
    *step = (ith_step){.chunk = chunk, .hop = s->hop};
    switch (s->stage) {
    case WAIT_CHUNK: return exchanged && !at_once && chunk >= 0 && wait_for(step, chunk % s->buffers);
    case WAIT_BUFFER:
        return exchanged && !at_once && next >= s->buffers && next < s->chunks && wait_for(step, next % s->buffers);
    case POST_INPUTS: return exchanged && next < s->chunks && post_chunk(s, step, next, false);
    case WAIT_INPUTS: return exchanged && at_once && next < s->chunks && wait_for(step, next % s->buffers);
    case OFFSETS:
        return present && s->setting->softmax == ITH_SOFTMAX_FIXED_M &&
               with_shard(s, step, ITH_STEP_OFFSETS, FROM_LEFT);
    case POST_HOP: return travels && !at_once && post_hop(s, step);
    case COMPUTE_LEFT: return present && with_shard(s, step, ITH_STEP_COMPUTE, FROM_LEFT);
    case COMPUTE_RIGHT: return present && s->hop > 0 && with_shard(s, step, ITH_STEP_COMPUTE, FROM_RIGHT);
    case POST_HOP_LATE: return travels && at_once && post_hop(s, step);
    case WAIT_HOP: return travels && wait_for(step, ITH_EXCHANGE_HOP);
    case POST_OUTPUTS: return present && exchanged && post_chunk(s, step, chunk, true);
    default: return present && exchanged && at_once && wait_for(step, chunk % s->buffers);
    }
}

/* Moves the walk over the schedule to the next stage of a hop, to the next hop, or to the next chunk. */
static void advance(ith_schedule *s)
{
    bool present = s->chunk >= 0 && s->chunk < s->chunks;
    if (s->stage == WAIT_HOP && present && s->hop + 1 < s->setting->ring) {
        s->hop++;
        s->stage = POST_HOP;
    } else if (s->stage < WAIT_OUTPUTS) {
        s->stage++;
    } else {
        s->chunk++;
        s->hop = s->stage = 0;
    }
}

static bool next(ith_schedule *s, ith_step *step)
{
    bool found = false;
    while (!found && s->chunk < s->chunks + s->buffers) {
        found = describe(s, step);
        advance(s);
    }
    return found;
}

/* ---- Hops that are alike ----------------------------------------------------------------------------------------- */

/* Some hops are never skipped: the first and the last hop; the hops at which a rank has the first or the last shard of
 * the ring; and the hops whose shard holds the last of the longer shares (ith_share), because later shards are shorter.
 * The HOPS_KEPT hops before and after each of these hops are not skipped either. */
enum { HOPS_KEPT = 4 };

static int hops_alike(const ith_schedule *s)
{
    const int ring = s->setting->ring, r = s->ring_index;
    /* the shards with ring indices below `longer` consist of longer shares alone */
    const int longer = (int)(s->setting->problem.kv_len % ((int64_t)ring * s->setting->ulysses) / s->setting->ulysses);
    const int kept[] = {0, r, ring - 1 - r, ring - 1, (r - longer + ring) % ring, longer - r};
    int end = ring;
    if (s->stage != POST_HOP || s->chunk < 0 || s->chunk >= s->chunks)
        return 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (s->hop >= kept[i] - HOPS_KEPT && s->hop <= kept[i] + HOPS_KEPT)
            return 0;
        if (kept[i] > s->hop && kept[i] - HOPS_KEPT < end)
            end = kept[i] - HOPS_KEPT;
    }
    return (end - s->hop) / 2 * 2;
}

static void skip_hops(ith_schedule *s, int count)
{
    s->hop += count;
}

/* ---- Strategies ------------------------------------------------------------------------------------------------ */

/* Fails unless the other axis of the mesh has length 1. name, other_name: the axes, for the error sentence. */
static ith_status one_axis(const ith_attn_setting *s, const char *name, const char *other_name, int other)
{
    int ranks = s->ulysses * s->ring;
    if (other == 1)
        return ITH_OK;
    return ith_fail(s->context, ITH_ERR_ARGUMENT,
                    "strategy %s has all %d ranks on its axis: %s must be %d and %s 1; ulysses_ring takes a mesh of "
                    "ulysses %d x ring %d",
                    name, ranks, name, ranks, other_name, s->ulysses, s->ring);
}

static ith_status is_ulysses(const ith_attn_setting *s)
{
    return one_axis(s, "ulysses", "ring", s->ring);
}

static ith_status is_ring(const ith_attn_setting *s)
{
    return one_axis(s, "ring", "ulysses", s->ulysses);
}

static ith_status any_mesh(const ith_attn_setting *s)
{
    (void)s;
    return ITH_OK;
}

const ith_strategy_ops ith_strategy_ulysses = {ITH_STRATEGY_ULYSSES, "ulysses", is_ulysses, next, move, group,
                                               hops_alike,           skip_hops};
const ith_strategy_ops ith_strategy_ring = {ITH_STRATEGY_RING, "ring",   is_ring, next, move, group,
                                            hops_alike,        skip_hops};
const ith_strategy_ops ith_strategy_ulysses_ring = {
    ITH_STRATEGY_ULYSSES_RING, "ulysses_ring", any_mesh, next, move, group, hops_alike, skip_hops};
