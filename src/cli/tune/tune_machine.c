/* SPDX-License-Identifier: Apache-2.0 */
/* The description of this machine that `ithaca tune` keeps. It is measured unless the file has all rates that are
 * wanted; rates and levels of the file that were not measured anew stay. */
#include "../cli.h"
#include "../launch/interrupt.h"
#include "../machine/machine_file.h"
#include "tune_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double LEAST_SECONDS = 0.05, MOST_SECONDS = 3;

static void show_measuring(void *user, int64_t done, int64_t total)
{
    ith_tune_show(user, "this machine: %lld of %lld", (long long)done, (long long)total);
}

/* Whether a description has all that this command would measure. */
static bool is_complete(const ith_tune *t, const ith_machine *m)
{
    for (int i = 0; i < t->settings->dtype.count; i++)
        if (!ith_machine_has_attention(m, (ith_dtype)t->settings->dtype.values[i], t->video.head_dim))
            return false;
    return m->level_count > 0 && (m->product_count > 0 || !t->has_video);
}

/* Appends the rows of the old list that the new one lacks. The result is allocated. */
static ith_machine_attention *merge_attention(const ith_machine *now, const ith_machine *old, int64_t *count)
{
    ith_machine_attention *rows = calloc((size_t)(now->attention_count + old->attention_count) + 1, sizeof *rows);
    *count = now->attention_count;
    if (!rows)
        return NULL;
    memcpy(rows, now->attention, (size_t)now->attention_count * sizeof *rows);
    for (int64_t i = 0; i < old->attention_count; i++)
        if (!ith_machine_has_attention(now, old->attention[i].dtype, old->attention[i].head_dim))
            rows[(*count)++] = old->attention[i];
    return rows;
}

/* Sets t->machine to the new description, and adds the rates and levels that only the old one has. The lists of
 * t->machine are allocated. */
static int merge(ith_tune *t, const ith_machine *now, const ith_machine *old)
{
    const bool deeper = old->level_count > now->level_count; /* links between processes and hosts, measured elsewhere */
    const ith_machine *linked = deeper ? old : now, *multiplied = now->product_count ? now : old;
    ith_machine *m = &t->machine;
    *m = *now;
    m->level_count = linked->level_count, m->product_count = multiplied->product_count;
    m->levels = ith_machine_file_copy_rows(linked->levels, m->level_count, sizeof *m->levels);
    m->attention = merge_attention(now, old, &m->attention_count);
    m->products = ith_machine_file_copy_rows(multiplied->products, m->product_count, sizeof *m->products);
    return ith_machine_file_check_rows(m);
}

/* Measures products at the sizes of the model. */
static int measure_products(ith_tune *t, double seconds, ith_machine *now, ith_machine_product *products)
{
    ith_tune_show(t, "this machine: linear layers and convolutions");
    ith_video_measure_options measuring = ITH_VIDEO_MEASURE_OPTIONS_INIT;
    measuring.seconds = seconds, measuring.should_stop = ith_interrupt_stops;
    ith_status status = ith_video_measure(t->context, &t->video, NULL, ITH_CFG_BATCH, now, (int)t->settings->ranks,
                                          &measuring, products, &now->product_count, NULL);
    now->products = products;
    t->late = status == ITH_ERR_INTERRUPTED;
    return status && !t->late ? ith_cli_error("%s", ith_context_error(t->context)) : ITH_EXIT_DONE;
}

/* Measures this machine, with rates for the types that are tuned, and products at the sizes of the model. */
static int measure(ith_tune *t, const ith_machine *old)
{
    const ith_tune_settings *s = t->settings;
    ith_machine_case cases[ITH_OPTION_LIST_MAX];
    ith_machine_product products[ITH_VIDEO_RATES] = {ITH_MACHINE_PRODUCT_INIT};
    ith_measure_options options = ITH_MEASURE_OPTIONS_INIT;
    ith_machine *measured = NULL;
    for (int i = 0; i < s->dtype.count; i++) {
        cases[i] = (ith_machine_case)ITH_MACHINE_CASE_INIT;
        cases[i].dtype = (ith_dtype)s->dtype.values[i], cases[i].head_dim = t->video.head_dim;
    }
    options.cases = cases, options.case_count = s->dtype.count;
    options.seconds = fmin(fmax(s->budget / 20, LEAST_SECONDS), MOST_SECONDS);
    options.threads = s->threads;
    options.should_stop = ith_tune_stops, options.on_progress = show_measuring, options.user = t;
    ith_status status = ith_machine_measure(t->context, &options, NULL, &measured);
    t->late = status == ITH_ERR_INTERRUPTED;
    if (status)
        return t->late ? ITH_EXIT_DONE : ith_cli_error("%s", ith_context_error(t->context));
    ith_machine now = *measured;
    int code = ITH_EXIT_DONE;
    if (t->has_video && !ith_tune_stops(t))
        code = measure_products(t, options.seconds, &now, products);
    if (!code && !t->late)
        code = merge(t, &now, old);
    ith_machine_free(&measured);
    if (!code && !t->late && t->machine_path[0])
        code = ith_machine_file_write(t->machine_path, &t->machine, "Written by 'ithaca tune'.");
    return code;
}

int ith_tune_machine(ith_tune *t)
{
    ith_machine old = ITH_MACHINE_INIT;
    if (!t->machine_path[0] && t->settings->ranks < 2)
        return ITH_EXIT_DONE;
    const bool there = t->machine_path[0] && !access(t->machine_path, F_OK);
    int code = there && !t->settings->again ? ith_machine_file_read(t->context, t->machine_path, &old) : ITH_EXIT_DONE;
    if (code)
        return code;
    if (is_complete(t, &old)) {
        t->machine = old;
        return ITH_EXIT_DONE;
    }
    code = measure(t, &old);
    ith_machine_file_free(&old);
    return code;
}
