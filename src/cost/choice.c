/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the choices of a plan for a machine that need not be this one (ith_price_plan): the planner's own choices, then
 * the kernel among those that the machine has rates of, then its tiles.
 *
 * A kernel that this library lacks has no functions here. Then a kernel of the library stands in for it in the setting,
 * so that the problem is checked and memory is counted; rates and tiles are the machine's. */
#include "../base/cpu.h"
#include "../base/size.h"
#include "../plan/kernel_choice.h"
#include "../plan/plan.h"
#include "../plan/settle.h"
#include "../plan/tiles.h"
#include "price.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

/* How far a row is from a plan: the softmax counts most, then the head size, then the tiles. */
static double distance(const ith_attn_setting *s, const ith_attn_tiles *tiles, const ith_machine_attention *row)
{
    return (row->softmax != s->softmax ? 1e6 : 0) + 1e3 * ith_machine_apart(row->head_dim, s->problem.head_dim) +
           ith_machine_apart(row->block_q, tiles->block_q) + ith_machine_apart(row->block_kv, tiles->block_kv) +
           ith_machine_apart(row->block_kv_compute, tiles->block_kv_compute) +
           ith_machine_apart(row->block_kv_compute_in, tiles->block_kv_compute_in);
}

/* Finds the row that is nearest to a plan, among the rows of a kernel, or of all kernels if the name is NULL. If
 * several rows are equally near, takes the fastest. Returns its number, -1 if there is none. */
static int64_t nearest_row(const ith_price *price, const char *kernel, const ith_attn_tiles *tiles)
{
    const ith_attn_setting *s = &price->setting;
    int64_t best = -1;
    double least = INFINITY, most = 0;
    for (int64_t i = 0; i < price->view->machine.attention_count; i++) {
        ith_machine_attention row = ith_machine_attention_at(price->view, i);
        if (row.dtype != s->problem.dtype || (kernel && strcmp(kernel, row.kernel)))
            continue;
        double away = distance(s, tiles, &row);
        if (away < least || (away == least && row.gflops > most))
            best = i, least = away, most = row.gflops;
    }
    return best;
}

/* Whether the machine has a rate of a kernel for a plan; of any kernel if the name is NULL. */
static bool has_rate(const ith_price *price, const char *kernel)
{
    const ith_attn_tiles none = {0};
    return nearest_row(price, kernel, &none) >= 0;
}

/* ---- Kernel ---------------------------------------------------------------------------------------------------- */

/* Whether the library would consider a kernel for a plan on this machine. */
static bool may_choose(const ith_price *price, const ith_attn_kernel *kernel)
{
    const ith_attn_setting *s = &price->setting;
    return ith_kernel_takes(kernel, s->problem.dtype, s->problem.head_dim, s->softmax) && has_rate(price, kernel->name);
}

/* The kernel that ITH_EFFORT_ESTIMATE takes among the kernels that the machine has rates of. NULL if the library knows
 * none of them. */
static const ith_attn_kernel *estimate(const ith_price *price)
{
    ith_candidates all = {.count = 0};
    const ith_attn_kernel *kernel;
    for (int i = 0; all.count < ITH_WISDOM_FIGURES && (kernel = ith_attn_kernel_at(i)); i++)
        if (may_choose(price, kernel))
            all.kernels[all.count++] = kernel;
    ith_candidates_drop_plain(&all);
    return all.count ? all.kernels[ith_candidates_estimate(&all, price->setting.problem.head_dim)] : NULL;
}

/* Whether a description is of this machine, as ith_machine_measure writes it. Wisdom tells about this machine alone. */
static bool is_here(const ith_price *price)
{
    char name[sizeof price->view->machine.name];
    return !strcmp(price->view->machine.name, ith_cpu_model(name, sizeof name));
}

/* Chooses the kernel that the planner would choose on the machine. This is the fastest kernel by wisdom, if the
 * description is of this machine and has rates of that kernel; otherwise the kernel of `estimate`. */
static ith_status choose_known(ith_price *price)
{
    ith_attn_setting *s = &price->setting;
    ith_status status = ith_kernel_choose(NULL, ITH_EFFORT_ESTIMATE, s);
    if (status)
        return status;
    bool recalled = s->kernel_origin == ITH_KERNEL_RECALLED && is_here(price) && has_rate(price, s->kernel->name);
    const ith_attn_kernel *kernel = recalled ? s->kernel : estimate(price);
    if (kernel)
        s->kernel = kernel;
    if (!recalled)
        s->kernel_origin = ITH_KERNEL_ESTIMATED;
    price->kernel = kernel ? kernel->name : NULL;
    return ITH_OK;
}

/* Whether an earlier row of the machine is of the same kernel and type. */
static bool is_repeated(const ith_price *price, int64_t number)
{
    const ith_machine_attention row = ith_machine_attention_at(price->view, number);
    for (int64_t i = 0; i < number; i++) {
        ith_machine_attention other = ith_machine_attention_at(price->view, i);
        if (other.dtype == row.dtype && !strcmp(other.kernel, row.kernel))
            return true;
    }
    return false;
}

/* Lists the kernels that the machine has rates of: the kernels of the problem's type or, if there are none, all
 * kernels, each with its type. */
static void list_rates(const ith_price *price, char *list, size_t bytes)
{
    const bool typed = has_rate(price, NULL);
    int length = 0;
    list[0] = '\0';
    for (int64_t i = 0; i < price->view->machine.attention_count && length >= 0 && (size_t)length < bytes; i++) {
        ith_machine_attention row = ith_machine_attention_at(price->view, i);
        if ((!typed || row.dtype == price->setting.problem.dtype) && !is_repeated(price, i))
            length += snprintf(list + length, bytes - (size_t)length, "%s%s for %s",
                               length ? ", " : ": there are rates of ", row.kernel, ith_dtype_name(row.dtype));
    }
}

static ith_status no_rate(const ith_price *price, const char *kernel)
{
    const ith_attn_problem *p = &price->setting.problem;
    char list[256];
    list_rates(price, list, sizeof list);
    return ith_fail(price->setting.context, ITH_ERR_UNSUPPORTED, "the machine%s%s has no rate of %s%.60s for %s%s",
                    price->view->machine.name[0] ? " " : "", price->view->machine.name,
                    kernel ? "kernel " : "any kernel", kernel ? kernel : "", ith_dtype_name(p->dtype), list);
}

/* Chooses the kernel that the options name. The library need not know it. */
static ith_status choose_named(const char *name, ith_price *price)
{
    const ith_attn_kernel *kernel = ith_attn_kernel_named(name);
    if (!has_rate(price, name))
        return no_rate(price, name);
    if (!kernel) {
        ith_status status = choose_known(price);
        price->kernel = NULL;
        return status;
    }
    if (!may_choose(price, kernel))
        return ith_kernel_take_named(name, &price->setting);
    price->setting.kernel = kernel;
    price->setting.kernel_origin = ITH_KERNEL_NAMED;
    price->kernel = kernel->name;
    return ITH_OK;
}

/* ---- Tiles ----------------------------------------------------------------------------------------------------- */

/* The tiles of a kernel that only the machine knows: as asked, otherwise of its row, and no longer than the problem. */
static ith_attn_tiles foreign_tiles(const ith_price *price, const ith_attn_options *options)
{
    const ith_attn_problem *p = &price->setting.problem;
    ith_attn_tiles asked = ith_tiles_asked(options), tiles;
    ith_attn_tiles row = {price->row.block_q, price->row.block_kv, price->row.block_kv_compute,
                          price->row.block_kv_compute_in};
    for (int i = 0; i < ITH_TILES; i++) {
        int64_t wanted = *ith_tile_at(&asked, i), most = i == 0 ? p->q_len : p->kv_len;
        int64_t size = wanted ? wanted : *ith_tile_at(&row, i);
        *ith_tile_at(&tiles, i) = ith_max64(ith_min64(size ? size : most, most), 1);
    }
    return tiles;
}

/* Finds the row and the tiles of the kernel. named: the name in the options, or NULL. */
static ith_status choose_tiles(const ith_attn_options *options, const char *named, ith_price *price)
{
    const ith_attn_tiles asked = ith_tiles_asked(options);
    ith_attn_options open = *options;
    bool foreign = !price->kernel;
    if (foreign) {
        int64_t row = nearest_row(price, named, &asked);
        if (row < 0)
            return no_rate(price, named);
        price->row = ith_machine_attention_at(price->view, row);
        price->kernel = ith_machine_kernel_name(price->view, row);
        price->tiles = foreign_tiles(price, options);
        open.block_q = open.block_kv = open.block_kv_compute = open.block_kv_compute_in = 0;
    }
    ith_status status = is_here(price) ? ith_tiles_resolve(NULL, &open, &price->setting)
                                       : ith_tiles_resolve_plain(&open, &price->setting);
    if (status || foreign)
        return status;
    price->tiles = price->setting.tiles;
    price->row = ith_machine_attention_at(price->view, nearest_row(price, price->kernel, &price->tiles));
    return ITH_OK;
}

/* ---- All choices ----------------------------------------------------------------------------------------------- */

/* The units of a rank, and the rate at which each works while all ranks compute. */
static void find_units(const ith_attn_options *options, ith_price *price)
{
    const ith_machine *m = &price->view->machine;
    int64_t host_ranks = price->view->host_ranks;
    price->units = options->threads ? options->threads : ith_max64(m->host_units / host_ranks, 1);
    if (m->rank_units)
        price->units = m->rank_units;
    price->unit_rate = ith_machine_busy_rate(m, (double)(price->view->unit_ranks * price->units));
    price->setting.threads = m->rank_units ? 1 : (int)price->units;
}

/* Reads and checks everything that the caller gives. Sets the group, the options, and the view and the setting of the
 * price, without choices. */
static ith_status read_request(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *given,
                               const ith_machine *machine, ith_group *group, ith_attn_options *options,
                               ith_price *price)
{
    ith_machine_view *view = price->view;
    ith_status status = ith_machine_read(context, machine, view);
    if (!status && group->ranks < 1)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "ranks is %d, and must be at least 1", group->ranks);
    if (!status)
        status = ith_settle_request(context, problem, given, group, options, &price->setting);
    price->setting.device = NULL; /* machines are described by their processors */
    if (!status)
        status = ith_settle_places(context, options, false, group);
    if (!status)
        status = ith_machine_place(context, group->ranks, options, view);
    if (!status)
        group->blocks = ith_machine_blocks(view);
    return status;
}

/* The longest ulysses axis, of at most the plan's length, that the machine can use. If it exchanges the same number of
 * heads with every rank, the axis has to divide the heads that are exchanged together. */
static int64_t longest_axis(const ith_price *price)
{
    const ith_attn_setting *s = &price->setting;
    const int64_t heads = s->problem.heads * (s->folded ? s->problem.batch : 1);
    int64_t axis = s->ulysses;
    if (!price->view->machine.even_heads || s->strategy == ITH_STRATEGY_SINGLE) /* single exchanges nothing */
        return axis;
    while (heads % axis || s->ulysses * s->ring % axis)
        axis--;
    return axis;
}

/* Fails if the machine cannot use the ulysses axis of the plan. */
static ith_status check_heads(const ith_price *price)
{
    const ith_attn_setting *s = &price->setting;
    const ith_machine *m = &price->view->machine;
    const int64_t longest = longest_axis(price);
    if (longest == s->ulysses)
        return ITH_OK;
    return ith_fail(
        s->context, ITH_ERR_ARGUMENT,
        "ulysses is %d, and on the machine%s%s it must divide the %lld heads that are exchanged together, as "
        "%lld does",
        s->ulysses, m->name[0] ? " " : "", m->name, (long long)(s->problem.heads * (s->folded ? s->problem.batch : 1)),
        (long long)longest);
}

/* Makes the planner's choices. A mesh that the options leave open has a ulysses axis that the machine can use. */
static ith_status settle(const ith_attn_options *given, const ith_group *group, ith_price *price)
{
    const ith_attn_setting before = price->setting;
    ith_attn_options options = *given;
    const bool open = !options.ulysses && !options.ring && options.strategy != ITH_STRATEGY_ULYSSES;
    ith_status status = ith_settle_choices(&options, group, &price->setting);
    const int64_t longest = status ? 0 : longest_axis(price);
    if (!status && open && longest < price->setting.ulysses) {
        options.ulysses = (int)longest;
        price->setting = before;
        status = ith_settle_choices(&options, group, &price->setting);
    }
    return status ? status : check_heads(price);
}

ith_status ith_price_request(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *options,
                             const ith_machine *machine, int ranks, int64_t *heads)
{
    ith_attn_options all;
    ith_machine_view view;
    ith_price price = {.view = &view};
    ith_group group = {.ranks = ranks};
    ith_status status = read_request(context, problem, options, machine, &group, &all, &price);
    *heads = status ? 0 : price.setting.problem.batch * price.setting.problem.heads;
    return status;
}

ith_status ith_price_plan(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *given,
                          const ith_machine *machine, int ranks, ith_machine_view *view, ith_price *out)
{
    ith_attn_options options;
    ith_group group = {.ranks = ranks};
    *out = (ith_price){.view = view};
    ith_status status = read_request(context, problem, given, machine, &group, &options, out);
    if (status)
        return status;
    find_units(&options, out);
    status = settle(&options, &group, out);
    if (!status)
        status = options.kernel ? choose_named(options.kernel, out) : choose_known(out);
    return status ? status : choose_tiles(&options, options.kernel, out);
}

ith_plan_info ith_price_info(const ith_price *price, int64_t sent_bytes, const ith_plan_sizes *sizes)
{
    ith_plan_info info = ith_plan_info_of(&price->setting, sent_bytes, sizes);
    info.kernel = price->kernel;
    info.block_q = price->tiles.block_q;
    info.block_kv = price->tiles.block_kv;
    info.block_kv_compute = price->tiles.block_kv_compute;
    info.block_kv_compute_in = price->tiles.block_kv_compute_in;
    return info;
}
