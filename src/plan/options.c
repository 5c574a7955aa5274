/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "../base/parallel.h"
#include "../base/sized.h"

int64_t *ith_tile_at(ith_attn_tiles *tiles, int index)
{
    int64_t *const all[ITH_TILES] = {&tiles->block_q, &tiles->block_kv, &tiles->block_kv_compute,
                                     &tiles->block_kv_compute_in};
    return all[index];
}

ith_attn_tiles ith_tiles_asked(const ith_attn_options *options)
{
    return (ith_attn_tiles){options->block_q, options->block_kv, options->block_kv_compute,
                            options->block_kv_compute_in};
}

const char *ith_tile_name(int index)
{
    static const char *const names[ITH_TILES] = {"block_q", "block_kv", "block_kv_compute", "block_kv_compute_in"};
    return names[index];
}

static ith_status check_enums(ith_context *context, const ith_attn_options *o)
{
    const struct {
        const char *name;
        int value, last;
        const char *first_name, *last_name;
    } rows[] = {
        {"strategy", (int)o->strategy, ITH_STRATEGY_ULYSSES_RING, ith_strategy_name(ITH_STRATEGY_AUTO),
         ith_strategy_name(ITH_STRATEGY_ULYSSES_RING)},
        {"direction", (int)o->direction, ITH_DIRECTION_BIDIR, ith_direction_name(ITH_DIRECTION_AUTO),
         ith_direction_name(ITH_DIRECTION_BIDIR)},
        {"softmax", (int)o->softmax, ITH_SOFTMAX_FIXED_M, ith_softmax_name(ITH_SOFTMAX_AUTO),
         ith_softmax_name(ITH_SOFTMAX_FIXED_M)},
        {"exchange", (int)o->exchange, ITH_EXCHANGE_COPY, ith_exchange_mode_name(ITH_EXCHANGE_AUTO),
         ith_exchange_mode_name(ITH_EXCHANGE_COPY)},
        {"fold", (int)o->fold, ITH_CHOICE_OFF, ith_choice_name(ITH_CHOICE_AUTO), ith_choice_name(ITH_CHOICE_OFF)},
        {"smooth", (int)o->smooth, ITH_CHOICE_OFF, ith_choice_name(ITH_CHOICE_AUTO), ith_choice_name(ITH_CHOICE_OFF)},
        {"effort", (int)o->effort, ITH_EFFORT_MEASURE, ith_effort_name(ITH_EFFORT_ESTIMATE),
         ith_effort_name(ITH_EFFORT_MEASURE)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].value >= 0 && rows[i].value <= rows[i].last)
            continue;
        bool low = rows[i].value < 0;
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s is %d, and must be from 0 (%s) to %d (%s), of which %d is the nearest", rows[i].name,
                        rows[i].value, rows[i].first_name, rows[i].last, rows[i].last_name, low ? 0 : rows[i].last);
    }
    return ITH_OK;
}

static ith_status check_numbers(ith_context *context, const ith_attn_options *o)
{
    ith_attn_tiles tiles = ith_tiles_asked(o);
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"ulysses", o->ulysses}, {"ring", o->ring}, {"chunks", o->chunks}, {"threads", o->threads}};
    const int count = (int)(sizeof rows / sizeof *rows);
    for (int i = 0; i < count + ITH_TILES; i++) {
        int64_t value = i < count ? rows[i].value : *ith_tile_at(&tiles, i - count);
        if (value < 0)
            return ith_fail(context, ITH_ERR_ARGUMENT, "%s is %lld, and must be 0 (choose for me) or more",
                            i < count ? rows[i].name : ith_tile_name(i - count), (long long)value);
    }
    if (o->threads > ITH_THREADS_MOST)
        return ith_fail(context, ITH_ERR_ARGUMENT, "threads is %d, and must be at most %d", o->threads,
                        ITH_THREADS_MOST);
    return ITH_OK;
}

ith_status ith_options_read(ith_context *context, const ith_attn_options *given, ith_attn_options *options)
{
    *options = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    ith_status status =
        given ? ITH_SIZED_READ(context, ith_attn_options, ITH_ATTN_OPTIONS_INIT, given, options) : ITH_OK;
    if (!status)
        status = check_enums(context, options);
    return status ? status : check_numbers(context, options);
}
