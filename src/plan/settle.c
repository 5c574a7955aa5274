/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a request and makes every choice of a plan (settle.h). */
#include "settle.h"

#include "../attention/schedule/schedule.h"
#include "../base/parallel.h"
#include "../base/size.h"
#include "../base/sized.h"
#include "../base/team_limit.h"
#include "agree.h"
#include "device_choice.h"
#include "kernel_choice.h"
#include "strategy_wisdom.h"
#include "tiles.h"

#include <omp.h>

#define MOST_CHUNKS 65536 /* the most chunks of a list of heads: planning takes time for every chunk */

/* ---- The request ----------------------------------------------------------------------------------------------- */

/* Checks the enumerations of the options. Each counts from 0, so its legal values are 0 to the last one. */
static ith_status check_enums(ith_context *context, const ith_attn_options *o)
{
    const struct {
        const char *name;
        int64_t value;
        int last;
        const char *first_name, *last_name;
    } rows[] = {
        {"strategy", (int)o->strategy, ITH_STRATEGY_ULYSSES_RING, ith_strategy_name(ITH_STRATEGY_AUTO),
         ith_strategy_name(ITH_STRATEGY_ULYSSES_RING)},
        {"direction", (int)o->direction, ITH_DIRECTION_BIDIR, ith_direction_name(ITH_DIRECTION_AUTO),
         ith_direction_name(ITH_DIRECTION_BIDIR)},
        {"softmax", (int)o->softmax, ITH_SOFTMAX_FIXED_M, ith_softmax_name(ITH_SOFTMAX_AUTO),
         ith_softmax_name(ITH_SOFTMAX_FIXED_M)},
        {"exchange", (int)o->exchange, ITH_EXCHANGE_MIXED, ith_exchange_mode_name(ITH_EXCHANGE_AUTO),
         ith_exchange_mode_name(ITH_EXCHANGE_MIXED)},
        {"fold", (int)o->fold, ITH_CHOICE_OFF, ith_choice_name(ITH_CHOICE_AUTO), ith_choice_name(ITH_CHOICE_OFF)},
        {"smooth", (int)o->smooth, ITH_CHOICE_OFF, ith_choice_name(ITH_CHOICE_AUTO), ith_choice_name(ITH_CHOICE_OFF)},
        {"compress", (int)o->compress, ITH_COMPRESS_8BIT, ith_compress_name(ITH_COMPRESS_OFF),
         ith_compress_name(ITH_COMPRESS_8BIT)},
        {"overlap", o->overlap, ITH_CHOICE_OFF, ith_choice_name(ITH_CHOICE_AUTO), ith_choice_name(ITH_CHOICE_OFF)},
        {"effort", (int)o->effort, ITH_EFFORT_MEASURE, ith_effort_name(ITH_EFFORT_ESTIMATE),
         ith_effort_name(ITH_EFFORT_MEASURE)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].value >= 0 && rows[i].value <= rows[i].last)
            continue;
        bool low = rows[i].value < 0;
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s is %lld, and must be from 0 (%s) to %d (%s), of which %d is the nearest", rows[i].name,
                        (long long)rows[i].value, rows[i].first_name, rows[i].last, rows[i].last_name,
                        low ? 0 : rows[i].last);
    }
    return ITH_OK;
}

/* Checks the numbers of the options. 0 means "choose for me", so only negative numbers are illegal here; the problem
 * may set further limits. */
static ith_status check_numbers(ith_context *context, const ith_attn_options *o)
{
    ith_attn_tiles tiles = ith_tiles_asked(o);
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"ulysses", o->ulysses},
                {"ring", o->ring},
                {"chunks", o->chunks},
                {"threads", o->threads},
                {"process_ranks", o->process_ranks},
                {"host_ranks", o->host_ranks}};
    const int count = (int)(sizeof rows / sizeof *rows);
    for (int i = 0; i < count + ITH_TILES; i++) {
        int64_t value = i < count ? rows[i].value : *ith_tile_at(&tiles, i - count);
        if (value < 0)
            return ith_fail(context, ITH_ERR_ARGUMENT, "%s is %lld, and must be 0 (choose for me) or more",
                            i < count ? rows[i].name : ith_tile_name(i - count), (long long)value);
    }
    if (o->threads > ITH_THREADS_MOST && ith_thread_limit() >= ITH_THREADS_MOST)
        return ith_fail(context, ITH_ERR_ARGUMENT, "threads is %d, and must be at most %d", o->threads,
                        ITH_THREADS_MOST);
    return ith_thread_limit_check(context, "threads", o->threads);
}

ith_status ith_settle_request(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *given,
                              const ith_group *group, ith_attn_options *options, ith_attn_setting *setting)
{
    *options = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    ith_status status =
        given ? ITH_SIZED_READ(context, ith_attn_options, ITH_ATTN_OPTIONS_INIT, given, options) : ITH_OK;
    if (!status)
        status = check_enums(context, options);
    if (!status)
        status = check_numbers(context, options);
    if (!status && group->ranks > ITH_MOST_RANKS)
        status =
            ith_fail(context, ITH_ERR_ARGUMENT, "ranks is %d, and must be at most %d", group->ranks, ITH_MOST_RANKS);
    if (!status)
        status = ith_attn_setting_init(context, problem, group->ranks, group->rank, setting);
    if (!status)
        setting->threads = ith_threads_or(options->threads, (int)ith_min64(omp_get_max_threads(), ITH_THREADS_MOST));
    return status;
}

ith_status ith_settle_places(ith_context *context, const ith_attn_options *options, bool shared_memory,
                             ith_group *group)
{
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"process_ranks", options->process_ranks}, {"host_ranks", options->host_ranks}};
    for (int i = 0; i < 2; i++)
        if (rows[i].value && group->ranks % rows[i].value)
            return ith_fail(context, ITH_ERR_ARGUMENT,
                            "%s is %lld, and must be 0 or divide the number of ranks, which is %d; the nearest that "
                            "does is %lld",
                            rows[i].name, (long long)rows[i].value, group->ranks,
                            (long long)ith_nearest_divisor(group->ranks, 1, rows[i].value));
    if (options->process_ranks && options->host_ranks % options->process_ranks)
        return ith_fail(
            context, ITH_ERR_ARGUMENT,
            "host_ranks is %lld, and must be 0 or a multiple of process_ranks, which is %lld, because a process runs "
            "on one host; the nearest is %lld",
            (long long)options->host_ranks, (long long)options->process_ranks,
            (long long)ith_nearest_divisor(group->ranks, options->process_ranks, options->host_ranks));
    group->blocks.host_ranks = options->host_ranks ? (int)options->host_ranks : group->ranks;
    group->blocks.process_ranks = shared_memory ? group->blocks.host_ranks : 1; /* a process runs on one host */
    if (options->process_ranks)
        group->blocks.process_ranks = (int)options->process_ranks;
    return ITH_OK;
}

/* ---- Strategy and mesh ----------------------------------------------------------------------------------------- */

/* The largest divisor of n that is at most `most`; at least 1. */
static int divisor_below(int n, int64_t most)
{
    int64_t best = ith_max64(ith_min64(most, n), 1);
    while (n % best)
        best--;
    return (int)best;
}

/* The busiest rank may have this much more work than the average, in percent. A ulysses axis that is less even is made
 * shorter. */
#define UNEVEN_PERCENT 15

/* The longest ulysses axis that divides the number of ranks and distributes the heads evenly enough
 * (UNEVEN_PERCENT). */
static int balanced_axis(int ranks, int64_t heads)
{
    for (int64_t axis = divisor_below(ranks, heads); axis > 1; axis = divisor_below(ranks, axis - 1))
        if ((double)ith_div_up(heads, axis) * (double)axis * 100 <= (double)heads * (100 + UNEVEN_PERCENT))
            return (int)axis;
    return 1;
}

/* Computes the length of one axis of the mesh from the length of the other. name: the axis that is given. */
static ith_status complete_mesh(ith_context *context, const char *name, int given, int ranks, int *other)
{
    if (ranks % given)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s is %d, and must divide the number of ranks, which is %d; the nearest that does is %d", name,
                        given, ranks, divisor_below(ranks, given));
    *other = ranks / given;
    return ITH_OK;
}

/* Chooses the ulysses axis if neither axis is given. heads: number of heads of the whole batch. */
static void default_mesh(ith_strategy strategy, const ith_group *group, int64_t heads, int *ulysses)
{
    int ranks = group->ranks;
    if (strategy == ITH_STRATEGY_RING) {
        *ulysses = 1;
    } else if (strategy == ITH_STRATEGY_ULYSSES_RING) {
        int64_t square = 1; /* a nearly square mesh, with ulysses as the longer side */
        while (square * square < ranks || ranks % square)
            square++;
        *ulysses = divisor_below(ranks, ith_min64(square, heads));
    } else if (strategy == ITH_STRATEGY_AUTO) {
        *ulysses = balanced_axis(group->blocks.host_ranks, heads);
    } else {
        *ulysses = ranks;
    }
}

/* Chooses the mesh. If one axis is given, it determines the other. If neither is given, the strategy determines
 * both. */
static ith_status choose_mesh(const ith_attn_options *options, const ith_group *group, ith_attn_setting *s)
{
    int ulysses = options->ulysses, ring = options->ring, ranks = group->ranks;
    ith_status status = ITH_OK;
    if (!ulysses && !ring)
        default_mesh(options->strategy, group, s->problem.batch * s->problem.heads, &ulysses);
    if (!ring)
        status = complete_mesh(s->context, "ulysses", ulysses, ranks, &ring);
    else if (!ulysses)
        status = complete_mesh(s->context, "ring", ring, ranks, &ulysses);
    if (status)
        return status;
    if ((int64_t)ulysses * ring != ranks) {
        int nearest = divisor_below(ranks, ulysses);
        return ith_fail(s->context, ITH_ERR_ARGUMENT,
                        "ulysses %d times ring %d must be the number of ranks, which is %d; the nearest mesh is "
                        "ulysses %d x ring %d",
                        ulysses, ring, ranks, nearest, ranks / nearest);
    }
    s->ulysses = ulysses;
    s->ring = ring;
    return ITH_OK;
}

/* Chooses the strategy. One rank, or replicated keys: single. Otherwise the ulysses axis is as long as the heads allow,
 * because ulysses sends least and has the bits of a single rank, and the ring axis takes the remaining factor. The
 * ulysses axis is shorter if heads would be distributed so unevenly that ranks wait for others (40 heads on 16 ranks: 8
 * x 2 instead of 16), or if it would cross hosts: the network between hosts is slow, and the hops of a ring hide behind
 * computing. */
static ith_status choose_strategy(const ith_attn_options *options, const ith_group *group, ith_attn_setting *s)
{
    int ranks = group->ranks;
    ith_status status = choose_mesh(options, group, s);
    if (status)
        return status;
    s->strategy = options->strategy;
    if (s->strategy == ITH_STRATEGY_AUTO)
        s->strategy = s->ring == 1      ? ITH_STRATEGY_ULYSSES
                      : s->ulysses == 1 ? ITH_STRATEGY_RING
                                        : ITH_STRATEGY_ULYSSES_RING;
    status = ith_strategy_find(s->strategy)->applicable(s);
    if (status)
        return status;
    if (ranks == 1 || s->problem.replicated_kv)
        s->strategy = ITH_STRATEGY_SINGLE; /* the strategy without exchanges */
    else if (s->strategy == ITH_STRATEGY_ULYSSES_RING && s->ulysses == 1)
        s->strategy = ITH_STRATEGY_RING;
    else if (s->strategy == ITH_STRATEGY_ULYSSES_RING && s->ring == 1)
        s->strategy = ITH_STRATEGY_ULYSSES;
    s->rank = group->rank;
    return ITH_OK;
}

/* ---- The other choices ----------------------------------------------------------------------------------------- */

/* The online softmax is as fast as fixed_m or faster, and takes every problem. */
static ith_softmax choose_softmax(const ith_attn_options *options)
{
    return options->softmax == ITH_SOFTMAX_AUTO ? ITH_SOFTMAX_ONLINE : options->softmax;
}

/* Chooses the number of chunks (parts of the heads that are exchanged one after another). Several chunks hide copies
 * behind computation and make buffers smaller, but each computation is shorter. A ulysses axis in place copies nothing,
 * so it has one chunk. */
static int choose_chunks(const ith_attn_options *options, const ith_attn_setting *s)
{
    if (options->chunks)
        return options->chunks < MOST_CHUNKS ? options->chunks : MOST_CHUNKS;
    return s->exchange == ITH_EXCHANGE_COPY ? 4 : 1;
}

static bool shares_memory(const ith_group *group)
{
    return group->blocks.process_ranks == group->ranks;
}

/* Whether the ranks of each ulysses axis share memory. */
static bool axis_shares_memory(const ith_group *group, const ith_attn_setting *s)
{
    return group->blocks.process_ranks % s->ulysses == 0;
}

/* Refuses an exchange that needs more shared memory than the ranks have. */
static ith_status check_exchange(const ith_group *group, const ith_attn_setting *s)
{
    bool on_axis = axis_shares_memory(group, s);
    if (s->exchange == ITH_EXCHANGE_IN_PLACE && !shares_memory(group))
        return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                        "exchange is in_place, and these ranks do not share memory: they can use %s",
                        on_axis && s->ulysses > 1 ? "mixed" : "copy");
    if (s->exchange == ITH_EXCHANGE_MIXED && !on_axis)
        return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                        "exchange is mixed, and the %d ranks of a ulysses axis do not share memory: they can use copy",
                        s->ulysses);
    return ITH_OK;
}

/* Chooses the exchange on a device, where rows of other ranks always arrive as messages. */
static ith_status choose_device_exchange(ith_attn_setting *s)
{
    if (s->exchange == ITH_EXCHANGE_IN_PLACE || s->exchange == ITH_EXCHANGE_MIXED)
        return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                        "exchange is %s, and on the device %s rows of other ranks arrive as messages: it can use copy",
                        ith_exchange_mode_name(s->exchange), s->device->name);
    s->exchange = ITH_EXCHANGE_COPY;
    return ITH_OK;
}

/* Chooses the exchange: in place where ranks share memory, because nothing is copied then. If only the ranks of each
 * ulysses axis share memory, this axis is used in place. A single rank, and ranks with replicated keys, exchange
 * nothing. */
static ith_status choose_exchange(const ith_attn_options *options, const ith_group *group, ith_attn_setting *s)
{
    s->exchange = ITH_EXCHANGE_AUTO;
    if (group->ranks == 1 || s->problem.replicated_kv)
        return ITH_OK;
    s->exchange = options->exchange;
    if (s->device)
        return choose_device_exchange(s);
    if (s->exchange == ITH_EXCHANGE_AUTO && shares_memory(group))
        s->exchange = ITH_EXCHANGE_IN_PLACE;
    if (s->exchange == ITH_EXCHANGE_AUTO)
        s->exchange = axis_shares_memory(group, s) ? ITH_EXCHANGE_MIXED : ITH_EXCHANGE_COPY;
    ith_status status = check_exchange(group, s);
    if (s->exchange == ITH_EXCHANGE_MIXED && s->ulysses == 1)
        s->exchange = ITH_EXCHANGE_COPY;
    if (s->exchange == ITH_EXCHANGE_MIXED && s->ring == 1)
        s->exchange = ITH_EXCHANGE_IN_PLACE;
    return status;
}

/* Chooses whether messages are compressed and whether ranks compute meanwhile: as asked, where messages are sent. */
static ith_status choose_messages(const ith_attn_options *options, ith_attn_setting *s)
{
    s->compress = ITH_COMPRESS_OFF;
    s->unhidden = false;
    if (options->compress == ITH_COMPRESS_BF16 && s->problem.dtype != ITH_F32)
        return ith_fail(s->context, ITH_ERR_ARGUMENT,
                        "compress is bf16, which is for tensors of f32, and these are of %s: 8bit is the nearest",
                        ith_dtype_name(s->problem.dtype));
    if (s->exchange == ITH_EXCHANGE_COPY || s->exchange == ITH_EXCHANGE_MIXED) {
        if (s->device && options->compress != ITH_COMPRESS_OFF)
            return ith_fail(s->context, ITH_ERR_UNSUPPORTED,
                            "compress is %s, and messages of the device %s are not compressed: off is the nearest",
                            ith_compress_name(options->compress), s->device->name);
        s->compress = options->compress;
        s->unhidden = options->overlap == ITH_CHOICE_OFF;
    }
    return ITH_OK;
}

/* Limits the number of chunks of a batch entry, so that the chunks of all entries can be counted in an int. */
static ith_status check_chunks(ith_attn_setting *s)
{
    if (s->folded)
        return ITH_OK;
    if (s->problem.batch > INT32_MAX)
        return ith_fail(s->context, ITH_ERR_ARGUMENT,
                        "fold is off, which takes a batch of at most %d, and batch is %lld", INT32_MAX,
                        (long long)s->problem.batch);
    s->chunks = (int)ith_min64(s->chunks, INT32_MAX / s->problem.batch);
    return ITH_OK;
}

ith_status ith_settle_choices(const ith_attn_options *options, const ith_group *group, ith_attn_setting *s)
{
    ith_status status = choose_strategy(options, group, s);
    if (!status)
        status = choose_exchange(options, group, s);
    if (!status)
        status = choose_messages(options, s);
    if (status)
        return status;
    bool alone = s->strategy == ITH_STRATEGY_SINGLE;
    s->softmax = choose_softmax(options);
    s->smoothed = options->smooth != ITH_CHOICE_OFF && s->softmax == ITH_SOFTMAX_FIXED_M;
    s->direction =
        !alone && s->ring > 1 && options->direction == ITH_DIRECTION_BIDIR ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
    s->folded = alone || s->ulysses == 1 || options->fold != ITH_CHOICE_OFF;
    s->chunks = alone ? 1 : choose_chunks(options, s);
    return check_chunks(s);
}

/* Makes every choice except for the kernel and its tiles. If the options name a kernel, takes this kernel. */
static ith_status make_choices(const ith_attn_options *options, const ith_group *group, ith_attn_setting *s)
{
    ith_status status = ith_settle_choices(options, group, s);
    return !status && options->kernel && !s->device ? ith_kernel_take_named(options->kernel, s) : status;
}

/* Makes the choices that wisdom knows (`known`). If they are illegal for the problem, makes the choices of the options
 * alone. Every rank comes to the same result. */
static ith_status choose_by_wisdom(const ith_attn_options *options, const ith_attn_options *known,
                                   const ith_group *group, ith_attn_setting *s)
{
    ith_attn_setting tried = *s;
    if (!make_choices(known, group, &tried)) {
        *s = tried;
        return ITH_OK;
    }
    return make_choices(options, group, s);
}

/* Every step that may fail on one rank alone ends with an agreement, before the next step communicates. */
ith_status ith_settle(const ith_attn_options *options, const ith_group *group, ith_comm *comm, ith_attn_setting *s)
{
    ith_attn_options known = *options;
    ith_status status = ith_agree_on_request(comm, s, options);
    if (!status)
        status = ith_strategy_recall(comm, s, group, &known);
    if (!status)
        status = ith_agree(s->context, comm, choose_by_wisdom(options, &known, group, s));
    s->device_messages = s->device && ith_comm_takes_device(comm);
    if (!status && s->device)
        return ith_device_kernel_choose(comm, options, s);
    if (!status && !s->kernel)
        status = ith_kernel_choose(comm, options->effort, s);
    return status ? status : ith_tiles_resolve(comm, options, s);
}
