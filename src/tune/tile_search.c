/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for the fastest tiles of a kernel (ith_tiles_search in ithaca/tune.h).
 *
 * The search climbs. It begins at the kernel's usual tiles. For one size after the other it tries the values at some
 * ratios of the best value so far, until no size improves: first with coarse ratios, then with fine ones. Last, the
 * fastest few and the usual tiles are measured again in turn, because a rate that was measured once may have been
 * lucky. */
#include "../base/clock.h"
#include "../base/dtype.h"
#include "../base/size.h"
#include "../base/sized.h"
#include "../plan/kernel_choice.h"
#include "../plan/tile_wisdom.h"
#include "../plan/tiles.h"
#include "kernel_rate.h"

#include <ithaca/tune.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_CANDIDATES = 512,
    MOST_KEYS = 16384, /* keys to which a block of queries attends in a trial */
    TURNS = 3,         /* of the last round */
    MOST_PASSES = 4    /* over all sizes with the same ratios */
};
static const double USUAL_SECONDS = 5, MOST_SECONDS = 1e6, TURN_SECONDS = 0.03;
/* CLIMB_SHARE: a step is taken only if it is faster by this share. FASTER_SHARE: tiles count as faster than the usual
 * ones only if they are faster by this share. */
static const double CLIMB_SHARE = 0.01, FASTER_SHARE = 0.005;

typedef struct search {
    ith_context *context;
    ith_tile_search options;
    const ith_attn_kernel *kernel;
    ith_attn_tile_limits limits;
    ith_rate_scene scene;
    double until;
    bool ended;                             /* the time is over, or the caller wants to stop */
    int64_t count, known;                   /* known: the most candidates whose rates were known */
    ith_tile_choice tried[MOST_CANDIDATES]; /* tried[0]: the usual tiles */
} search;

static ith_attn_tiles tiles_of(const ith_tile_choice *c)
{
    return (ith_attn_tiles){c->block_q, c->block_kv, c->block_kv_compute, c->block_kv_compute_in};
}

static ith_tile_choice choice_of(const ith_attn_tiles *t, double gflops)
{
    return (ith_tile_choice){t->block_q, t->block_kv, t->block_kv_compute, t->block_kv_compute_in, gflops};
}

/* ---- One candidate --------------------------------------------------------------------------------------------- */

static bool stopped(void *user)
{
    const search *s = user;
    return (s->options.should_stop && s->options.should_stop(s->options.user)) || ith_context_interrupted(s->context);
}

/* The keys of a trial: as many as the class has, up to MOST_KEYS. */
static int64_t trial_keys(const search *s)
{
    return ith_min64(ith_tile_class(s->options.keys), MOST_KEYS);
}

/* Measures the rate with some tiles. A wish to stop ends the search without an error. */
static ith_status measure(search *s, const ith_attn_tiles *tiles, double seconds, double *gflops)
{
    const ith_rate_request request = {
        .kernel = s->kernel, .softmax = s->options.softmax, .tiles = *tiles, .keys = trial_keys(s), .seconds = seconds};
    ith_status status = ith_rate_measure_whole(&s->scene, &request, gflops);
    if (status == ITH_ERR_INTERRUPTED) {
        s->ended = true;
        return ITH_OK;
    }
    return status;
}

/* Finds the candidate with these tiles among the candidates that were tried; NULL if there is none. */
static ith_tile_choice *find(search *s, const ith_attn_tiles *tiles)
{
    for (int64_t i = 0; i < s->count; i++) {
        const ith_attn_tiles t = tiles_of(&s->tried[i]);
        if (!memcmp(&t, tiles, sizeof t))
            return &s->tried[i];
    }
    return NULL;
}

/* Sets *gflops to the rate with these tiles, measured now, earlier in this search or by an earlier one; 0 if the search
 * has ended. */
static ith_status find_rate(search *s, const ith_attn_tiles *tiles, double *gflops)
{
    const ith_tile_choice *before = find(s, tiles);
    ith_tile_choice now = choice_of(tiles, 0);
    ith_status status = ITH_OK;
    *gflops = before ? before->gflops : 0;
    s->ended |= !before && s->count == MOST_CANDIDATES;
    if (before || s->ended)
        return ITH_OK;
    now.gflops = s->options.known ? s->options.known(s->options.user, &now) : 0;
    if (!(now.gflops > 0 && now.gflops < INFINITY)) {
        s->ended = ith_clock_seconds() > s->until;
        status = s->ended ? ITH_OK : measure(s, tiles, 0, &now.gflops);
        if (!status && !s->ended && s->options.measured)
            s->options.measured(s->options.user, &now);
    }
    if (status || s->ended)
        return status;
    *gflops = now.gflops;
    s->tried[s->count++] = now;
    return ITH_OK;
}

/* ---- Climbing -------------------------------------------------------------------------------------------------- */

/* The legal size nearest to `size`, which holds no more rows than a trial has. */
static int64_t legal_size(const search *s, int index, double size)
{
    ith_attn_tile_limits l = s->limits;
    const int64_t step = *ith_tile_at(&l.step, index), most = *ith_tile_at(&l.most, index);
    int64_t limit = index ? ith_min64(most, ith_round_up(trial_keys(s), step)) : most;
    int64_t rounded = (int64_t)(size / (double)step + 0.5) * step;
    return ith_max64(ith_min64(rounded, limit / step * step), step);
}

/* Tries `from` with one size at a ratio. Tiles inside that size shrink with it, and tiles around it grow with it. */
static ith_status try_ratio(search *s, ith_attn_tiles from, int index, double ratio, ith_attn_tiles *best,
                            double *best_gflops)
{
    char why[256];
    double gflops = 0;
    *ith_tile_at(&from, index) = legal_size(s, index, ratio * (double)*ith_tile_at(&from, index));
    for (int i = index - 1; i > 0; i--)
        *ith_tile_at(&from, i) =
            ith_max64(*ith_tile_at(&from, i), legal_size(s, i, (double)*ith_tile_at(&from, i + 1)));
    for (int i = index + 1; index && i < ITH_TILES; i++)
        *ith_tile_at(&from, i) =
            ith_min64(*ith_tile_at(&from, i), legal_size(s, i, (double)*ith_tile_at(&from, i - 1)));
    if (!ith_tiles_check(s->kernel, s->options.head_dim, &from, why, sizeof why))
        return ITH_OK;
    ith_status status = find_rate(s, &from, &gflops);
    if (!status && gflops > *best_gflops * (1 + CLIMB_SHARE))
        *best = from, *best_gflops = gflops;
    return status;
}

/* Climbs with some ratios until no size improves. */
static ith_status climb(search *s, const double *ratios, int count, ith_attn_tiles *best, double *best_gflops)
{
    static const int order[ITH_TILES] = {1, 0, 2, 3}; /* the sizes that matter most come first */
    ith_status status = ITH_OK;
    double before = 0;
    for (int pass = 0; pass < MOST_PASSES && before < *best_gflops; pass++) {
        before = *best_gflops;
        for (int i = 0; i < ITH_TILES; i++) {
            const ith_attn_tiles from = *best;
            for (int k = 0; !status && k < count; k++)
                status = try_ratio(s, from, order[i], ratios[k], best, best_gflops);
        }
    }
    return status;
}

/* ---- The last round -------------------------------------------------------------------------------------------- */

/* Sorts the candidates behind the first, the fastest first. */
static void sort(search *s)
{
    for (int64_t i = 2; i < s->count; i++)
        for (int64_t j = i; j > 1 && s->tried[j].gflops > s->tried[j - 1].gflops; j--) {
            const ith_tile_choice swapped = s->tried[j];
            s->tried[j] = s->tried[j - 1], s->tried[j - 1] = swapped;
        }
}

/* Measures the usual tiles and the fastest others again, in turn, and keeps the best rate of each in these turns. */
static ith_status compare(search *s)
{
    const int64_t count = ith_min64(s->count, ITH_TILE_CHOICES);
    s->known = s->count;
    double rates[ITH_TILE_CHOICES] = {0};
    ith_status status = ITH_OK;
    sort(s);
    for (int turn = 0; !status && turn < TURNS && count > 1; turn++)
        for (int64_t i = 0; !status && i < count && !s->ended; i++) {
            const ith_attn_tiles tiles = tiles_of(&s->tried[i]);
            double gflops = 0;
            s->ended = ith_clock_seconds() > s->until;
            if (!s->ended)
                status = measure(s, &tiles, TURN_SECONDS, &gflops);
            rates[i] = fmax(rates[i], gflops);
        }
    for (int64_t i = 0; i < count && count > 1 && !s->ended; i++)
        s->tried[i].gflops = rates[i];
    s->count = s->ended ? s->count : count;
    sort(s);
    return status;
}

static ith_status run(search *s)
{
    static const double coarse[] = {0.25, 0.5, 2, 4}, fine[] = {0.75, 1.25, 1.5};
    ith_attn_tiles best = s->limits.best;
    double gflops = 0;
    /* as a plan has them: no tile is longer than the keys */
    for (int i = 1; i < ITH_TILES; i++)
        *ith_tile_at(&best, i) = ith_min64(*ith_tile_at(&best, i), legal_size(s, i, MOST_KEYS));
    ith_status status = find_rate(s, &best, &gflops);
    if (!status)
        status = climb(s, coarse, sizeof coarse / sizeof *coarse, &best, &gflops);
    if (!status)
        status = climb(s, fine, sizeof fine / sizeof *fine, &best, &gflops);
    return status ? status : compare(s);
}

/* ---- Arguments ------------------------------------------------------------------------------------------------- */

static ith_status read_search(ith_context *context, const ith_tile_search *given, ith_tile_search *o)
{
    *o = (ith_tile_search)ITH_TILE_SEARCH_INIT;
    ith_status status = ITH_SIZED_READ(context, ith_tile_search, ITH_TILE_SEARCH_INIT, given, o);
    if (status)
        return status;
    if (!ith_dtype_is_operand(o->dtype))
        return ith_fail(context, ITH_ERR_ARGUMENT, "dtype is %d (%s); attention takes F32, BF16 and F16", (int)o->dtype,
                        ith_dtype_name(o->dtype));
    if ((unsigned)o->softmax > ITH_SOFTMAX_FIXED_M)
        return ith_fail(context, ITH_ERR_ARGUMENT, "softmax is %d; 0 (auto), 1 (online) and 2 (fixed_m) are known",
                        o->softmax);
    status = ith_head_dim_check(context, o->head_dim);
    if (status)
        return status;
    if (o->keys < 1)
        return ith_fail(context, ITH_ERR_ARGUMENT, "keys is %lld, and must be at least 1", (long long)o->keys);
    if (!(o->seconds >= 0 && o->seconds <= MOST_SECONDS))
        return ith_fail(context, ITH_ERR_ARGUMENT, "seconds is %g, and must be from 0 to %g", o->seconds, MOST_SECONDS);
    o->softmax = o->softmax ? o->softmax : ITH_SOFTMAX_ONLINE;
    o->seconds = o->seconds > 0 ? o->seconds : USUAL_SECONDS;
    return ITH_OK;
}

/* Finds the kernel: the one that is named, or the one that a plan takes. */
static ith_status find_kernel(ith_context *context, ith_tile_search *o, const ith_attn_kernel **kernel)
{
    ith_attn_setting setting = {.context = context, .softmax = o->softmax};
    setting.problem.dtype = o->dtype, setting.problem.head_dim = o->head_dim;
    ith_status status =
        o->kernel ? ith_kernel_take_named(o->kernel, &setting) : ith_kernel_choose(NULL, ITH_EFFORT_ESTIMATE, &setting);
    *kernel = setting.kernel;
    return status;
}

/* Reports the usual tiles, and the tiles that are clearly faster. */
static ith_status make_report(const search *s, ith_tile_report *report)
{
    ith_tile_report found = ITH_TILE_REPORT_INIT;
    snprintf(found.kernel, sizeof found.kernel, "%s", s->kernel->name);
    found.complete = !s->ended, found.tried = s->known;
    for (int64_t i = 0; i < s->count && found.count < ITH_TILE_CHOICES; i++)
        if (i == 0 || s->tried[i].gflops > s->tried[0].gflops * (1 + FASTER_SHARE))
            found.best[found.count++] = s->tried[i];
    return ITH_SIZED_FILL(s->context, ith_tile_report, ITH_TILE_REPORT_INIT, report, &found);
}

ith_status ith_tiles_search(ith_context *context, const ith_tile_search *given, ith_tile_report *report)
{
    const double start = ith_clock_seconds();
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, given, "search");
    if (!status)
        status = ITH_SIZED_CHECK(context, ith_tile_report, ITH_TILE_REPORT_INIT, report);
    if (!status)
        status = ith_context_check_process(context);
    search *s = status ? NULL : ith_alloc_zero(context, 1, sizeof *s, "a search for tiles");
    if (!s)
        return status ? status : ITH_ERR_MEMORY;
    s->context = context;
    status = read_search(context, given, &s->options);
    if (!status)
        status = find_kernel(context, &s->options, &s->kernel);
    if (!status) {
        s->until = start + s->options.seconds;
        s->limits = s->kernel->tiles(s->options.head_dim);
        status = ith_rate_scene_create(context, s->options.dtype, s->options.head_dim, 1, &s->scene);
        s->scene.stopped = stopped, s->scene.user = s;
        status = status ? status : run(s);
        ith_rate_scene_free(&s->scene);
    }
    if (!status)
        status = make_report(s, report);
    ith_free(context, s);
    return status;
}

/* ---- Wisdom ---------------------------------------------------------------------------------------------------- */

/* Finds the case of a search that names its kernel. On success the wisdom is locked. */
static ith_status open_case(ith_context *context, const ith_tile_search *given, ith_tile_case *c, ith_wisdom **wisdom)
{
    ith_tile_search o;
    const ith_attn_kernel *kernel;
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, given, "search");
    if (!status)
        status = read_search(context, given, &o);
    if (!status)
        status = ith_need(context, o.kernel, "search->kernel");
    if (!status)
        status = find_kernel(context, &o, &kernel);
    if (status)
        return status;
    *c = (ith_tile_case){kernel->name, o.dtype, o.softmax, o.head_dim, o.keys};
    return ith_wisdom_open(context, wisdom);
}

ith_status ith_wisdom_put_tiles(ith_context *context, const ith_tile_search *given, const ith_tile_choice *tiles,
                                double usual_gflops)
{
    ith_tile_case c;
    ith_wisdom *wisdom;
    char why[256];
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, tiles, "tiles");
    if (status)
        return status;
    const ith_attn_tiles sizes = tiles_of(tiles);
    const double rate = tiles->gflops;
    if (!(rate > 0) || !(usual_gflops > 0) || !isfinite(rate) || !isfinite(usual_gflops))
        return ith_fail(context, ITH_ERR_ARGUMENT, "gflops is %g and usual_gflops %g: both must be finite and above 0",
                        rate, usual_gflops);
    status = open_case(context, given, &c, &wisdom);
    if (status)
        return status;
    bool legal = ith_tiles_check(ith_attn_kernel_named(c.kernel), c.head_dim, &sizes, why, sizeof why);
    if (legal)
        ith_tile_wisdom_put(wisdom, &c, &sizes, rate, usual_gflops);
    ith_wisdom_close(context);
    return legal ? ITH_OK : ith_fail(context, ITH_ERR_ARGUMENT, "%s", why);
}

ith_status ith_wisdom_get_tiles(ith_context *context, const ith_tile_search *given, ith_tile_choice *tiles)
{
    ith_tile_case c;
    ith_wisdom *wisdom;
    ith_attn_tiles sizes;
    ith_status status = ith_need(context, tiles, "tiles");
    if (!status)
        status = open_case(context, given, &c, &wisdom);
    if (status)
        return status;
    ith_tile_wisdom_find(wisdom, &c, &sizes);
    ith_wisdom_close(context);
    *tiles = choice_of(&sizes, 0);
    return ITH_OK;
}
