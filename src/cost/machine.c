/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks machine descriptions, and finds the level over which two ranks exchange data (machine.h). The rate
 * of a unit falls from 1 to busy_share, linearly in the number of units that work. */
#include "machine.h"

#include "../base/dtype.h"
#include "../base/size.h"
#include "../base/sized.h"

#include <math.h>
#include <string.h>

/* ---- Reading --------------------------------------------------------------------------------------------------- */

/* Element `index` of an array of structs of any version. Each begins with its size. */
static const void *element_at(const void *array, int64_t index)
{
    return (const char *)array + (size_t)index * *(const size_t *)array;
}

/* Copies element `index` of an array of structs of any version over the defaults in *full. */
#define READ_ELEMENT(array, index, full) read_element(array, index, full, sizeof *(full))
static void read_element(const void *array, int64_t index, void *full, size_t full_bytes)
{
    size_t bytes = *(const size_t *)array, known = bytes < full_bytes ? bytes : full_bytes;
    memcpy(full, element_at(array, index), known);
    *(size_t *)full = full_bytes;
}

ith_machine_attention ith_machine_attention_at(const ith_machine_view *view, int64_t index)
{
    ith_machine_attention row = ITH_MACHINE_ATTENTION_INIT;
    READ_ELEMENT(view->machine.attention, index, &row);
    return row;
}

const char *ith_machine_kernel_name(const ith_machine_view *view, int64_t index)
{
    const ith_machine_attention *row = element_at(view->machine.attention, index);
    return row->kernel;
}

ith_machine_product ith_machine_product_at(const ith_machine_view *view, int64_t index)
{
    ith_machine_product row = ITH_MACHINE_PRODUCT_INIT;
    READ_ELEMENT(view->machine.products, index, &row);
    return row;
}

/* ---- Checks ---------------------------------------------------------------------------------------------------- */

/* The arrays of a description, for error sentences. */
typedef enum array { MACHINE, LEVEL, ATTENTION, PRODUCT } array;

static ith_status wrong(ith_context *context, array where, int64_t index, const char *field, double value,
                        const char *rule)
{
    static const char *const names[] = {"the machine", "level", "row of attention", "row of products"};
    if (where == MACHINE)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s's %s is %.12g, and must be %s", names[where], field, value,
                        rule);
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s of %s %lld (counted from 0) of the machine is %.12g, and must be %s",
                    field, names[where], (long long)index, value, rule);
}

/* The kinds of numbers in a description. The limits keep every cost finite, and products of units and ranks below the
 * largest int64_t. */
typedef enum range { FROM_ZERO, ABOVE_ZERO, SHARE, RANKS, UNITS, UNITS_OR_NONE } range;
/* A number of a description, the name of its field, and the range in which it must lie. */
typedef struct number {
    const char *field;
    double value;
    range range;
} number;

static ith_status check_numbers(ith_context *context, array where, int64_t index, const number *numbers, int count)
{
    static const struct {
        double least, most;
        bool or_zero;
        const char *rule;
    } ranges[] = {[FROM_ZERO] = {1e-30, 1e30, true, "0, or from 1e-30 to 1e30"},
                  [ABOVE_ZERO] = {1e-30, 1e30, false, "from 1e-30 to 1e30"},
                  [SHARE] = {1e-30, 1, true, "from 0 to 1"},
                  [RANKS] = {1, 1e30, true, "0 or more"},
                  [UNITS] = {1, 1e6, false, "from 1 to 1000000"},
                  [UNITS_OR_NONE] = {1, 1e6, true, "from 0 to 1000000"}};
    for (int i = 0; i < count; i++) {
        double value = numbers[i].value, least = ranges[numbers[i].range].least, most = ranges[numbers[i].range].most;
        if (!(value >= least && value <= most) && !(value == 0 && ranges[numbers[i].range].or_zero))
            return wrong(context, where, index, numbers[i].field, value, ranges[numbers[i].range].rule);
    }
    return ITH_OK;
}

/* Fails unless a text ends within its array of `bytes` bytes. */
static ith_status check_text(ith_context *context, const char *text, size_t bytes, const char *field)
{
    if (memchr(text, 0, bytes))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s of the machine has no end: it must be shorter than %zu bytes", field,
                    bytes);
}

static ith_status check_level(ith_context *context, const ith_machine_view *view, int index)
{
    const ith_machine_level *level = &view->levels[index];
    const number numbers[] = {{"ranks", (double)level->ranks, RANKS},
                              {"bytes_per_second", level->bytes_per_second, FROM_ZERO},
                              {"group_bytes_per_second", level->group_bytes_per_second, FROM_ZERO},
                              {"latency_seconds", level->latency_seconds, FROM_ZERO},
                              {"setup_seconds", level->setup_seconds, FROM_ZERO},
                              {"copy_bytes_per_second", level->copy_bytes_per_second, FROM_ZERO},
                              {"overlap", level->overlap, SHARE}};
    ith_status status = check_numbers(context, LEVEL, index, numbers, sizeof numbers / sizeof *numbers);
    if (!status)
        status = check_text(context, level->name, sizeof level->name, "the name of a level");
    const ith_machine_level *inner = index ? &view->levels[index - 1] : NULL;
    if (status || !inner)
        return status;
    if (level->ranks && inner->ranks && level->ranks % inner->ranks)
        return wrong(context, LEVEL, index, "ranks", (double)level->ranks, "a multiple of ranks of the level before");
    if (level->shares_memory && !inner->shares_memory)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "level %d (counted from 0) of the machine shares memory, and the level before does not: levels "
                        "are listed from the innermost on",
                        index);
    if (!level->between_hosts && inner->between_hosts)
        return ith_fail(
            context, ITH_ERR_ARGUMENT,
            "level %d (counted from 0) of the machine lies within a host, and the level before joins hosts: "
            "levels are listed from the innermost on",
            index);
    return ITH_OK;
}

static ith_status check_attention(ith_context *context, const ith_machine_view *view, int64_t index)
{
    const ith_machine_attention row = ith_machine_attention_at(view, index);
    const number numbers[] = {{"head_dim", (double)row.head_dim, ABOVE_ZERO},
                              {"block_q", (double)row.block_q, FROM_ZERO},
                              {"block_kv", (double)row.block_kv, FROM_ZERO},
                              {"block_kv_compute", (double)row.block_kv_compute, FROM_ZERO},
                              {"block_kv_compute_in", (double)row.block_kv_compute_in, FROM_ZERO},
                              {"gflops", row.gflops, ABOVE_ZERO},
                              {"call_seconds", row.call_seconds, FROM_ZERO},
                              {"pack_bytes_per_second", row.pack_bytes_per_second, FROM_ZERO},
                              {"offset_bytes_per_second", row.offset_bytes_per_second, FROM_ZERO}};
    ith_status status = check_numbers(context, ATTENTION, index, numbers, sizeof numbers / sizeof *numbers);
    if (!status)
        status = check_text(context, row.kernel, sizeof row.kernel, "the name of a kernel");
    if (status)
        return status;
    if (!row.kernel[0])
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "row of attention %lld (counted from 0) of the machine names no kernel", (long long)index);
    if (!ith_dtype_is_operand(row.dtype))
        return wrong(context, ATTENTION, index, "dtype", row.dtype, "f32, bf16 or f16");
    if (row.softmax != ITH_SOFTMAX_ONLINE && row.softmax != ITH_SOFTMAX_FIXED_M)
        return wrong(context, ATTENTION, index, "softmax", row.softmax, "online or fixed_m");
    return ITH_OK;
}

static ith_status check_product(ith_context *context, const ith_machine_view *view, int64_t index)
{
    const ith_machine_product row = ith_machine_product_at(view, index);
    const number numbers[] = {{"rows", (double)row.rows, FROM_ZERO},
                              {"features", (double)row.features, FROM_ZERO},
                              {"gflops", row.gflops, ABOVE_ZERO},
                              {"call_seconds", row.call_seconds, FROM_ZERO}};
    if (row.dtype != ITH_F32 && row.dtype != ITH_BF16)
        return wrong(context, PRODUCT, index, "dtype", row.dtype, "f32 or bf16");
    if (row.work != ITH_WORK_LINEAR && row.work != ITH_WORK_CONVOLUTION)
        return wrong(context, PRODUCT, index, "work", row.work, "linear (0) or convolution (1)");
    return check_numbers(context, PRODUCT, index, numbers, sizeof numbers / sizeof *numbers);
}

/* Fails unless an array of `count` structs is there, and its structs have the size of one version. */
static ith_status check_array(ith_context *context, const void *first, size_t bytes, int64_t count, int64_t most,
                              const char *name)
{
    if (count < 0 || count > most)
        return ith_fail(context, ITH_ERR_ARGUMENT, "the machine's %s_count is %lld, and must be from 0 to %lld", name,
                        (long long)count, (long long)most);
    return ith_sized_check_array(context, name, "its ..._INIT", first, count, bytes);
}

#define MOST_ROWS 1000000 /* of an array of a description */

static ith_status check_arrays(ith_context *context, const ith_machine *m)
{
    ith_status status = check_array(context, m->levels, sizeof *m->levels, m->level_count, ITH_MACHINE_LEVELS, "level");
    if (!status)
        status = check_array(context, m->attention, sizeof *m->attention, m->attention_count, MOST_ROWS, "attention");
    return status ? status
                  : check_array(context, m->products, sizeof *m->products, m->product_count, MOST_ROWS, "product");
}

ith_status ith_machine_read(ith_context *context, const ith_machine *given, ith_machine_view *out)
{
    ith_machine *m = &out->machine;
    *m = (ith_machine)ITH_MACHINE_INIT;
    ith_status status = ITH_SIZED_READ(context, ith_machine, ITH_MACHINE_INIT, given, m);
    const number numbers[] = {{"ranks", (double)m->ranks, RANKS},
                              {"host_units", (double)m->host_units, UNITS},
                              {"rank_units", (double)m->rank_units, UNITS_OR_NONE},
                              {"unit_hosts", (double)m->unit_hosts, UNITS_OR_NONE},
                              {"busy_share", m->busy_share, SHARE},
                              {"memory_bytes", m->memory_bytes, FROM_ZERO},
                              {"row_bytes_per_second", m->row_bytes_per_second, FROM_ZERO},
                              {"start_seconds", m->start_seconds, FROM_ZERO},
                              {"even_heads", (double)m->even_heads, SHARE}};
    if (!status)
        status = check_numbers(context, MACHINE, 0, numbers, sizeof numbers / sizeof *numbers);
    if (!status)
        status = check_text(context, m->name, sizeof m->name, "the name");
    if (!status)
        status = check_text(context, m->source, sizeof m->source, "the source");
    if (!status)
        status = check_arrays(context, m);
    for (int i = 0; !status && i < m->level_count; i++) {
        out->levels[i] = (ith_machine_level)ITH_MACHINE_LEVEL_INIT;
        READ_ELEMENT(m->levels, i, &out->levels[i]);
        status = check_level(context, out, i);
    }
    for (int64_t i = 0; !status && i < m->attention_count; i++)
        status = check_attention(context, out, i);
    for (int64_t i = 0; !status && i < m->product_count; i++)
        status = check_product(context, out, i);
    return status;
}

ith_status ith_machine_check(ith_context *context, const ith_machine *machine)
{
    ith_machine_view view;
    if (!context)
        return ith_need(NULL, context, "context");
    return ith_machine_read(context, machine, &view);
}

/* ---- Units and sizes ------------------------------------------------------------------------------------------- */

double ith_machine_busy_rate(const ith_machine *m, double wanted)
{
    /* The share is the first term, so that the sum is above 0 however small the share is. */
    const double units = (double)m->host_units, share = m->busy_share > 0 && units > 1 ? m->busy_share : 1;
    return share + (1 - share) * (units - fmin(wanted, units)) / fmax(units - 1, 1);
}

double ith_machine_apart(int64_t a, int64_t b)
{
    return a > 0 && b > 0 ? fabs(log2((double)a / (double)b)) : 0;
}

/* ---- Levels ---------------------------------------------------------------------------------------------------- */

/* The number of consecutive ranks that a level joins in a run. Options that say how the ranks are started count as well
 * as the description. */
static int64_t joined_by(const ith_machine_level *level, int64_t ranks, const ith_attn_options *options)
{
    int64_t joined = level->ranks ? ith_min64(level->ranks, ranks) : ranks;
    if (level->shares_memory && options->process_ranks)
        joined = ith_min64(joined, options->process_ranks);
    if (!level->between_hosts && options->host_ranks)
        joined = ith_min64(joined, options->host_ranks);
    return joined;
}

ith_status ith_machine_place(ith_context *context, int ranks, const ith_attn_options *options, ith_machine_view *view)
{
    const ith_machine *m = &view->machine;
    int64_t widest = 1;
    view->ranks = ranks;
    view->host_ranks = 1;
    if (m->ranks && ranks > m->ranks)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "ranks is %d, and must be at most %lld, the ranks of the machine%s%s", ranks,
                        (long long)m->ranks, m->name[0] ? " " : "", m->name);
    for (int i = 0; i < m->level_count; i++) {
        widest = view->joined[i] = ith_max64(joined_by(&view->levels[i], ranks, options), widest);
        if (!view->levels[i].between_hosts)
            view->host_ranks = widest;
    }
    view->unit_ranks = ith_min64(view->host_ranks * ith_max64(m->unit_hosts, 1), ranks);
    if (widest < ranks)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "no level of the machine joins more than %lld ranks, and there are %d", (long long)widest,
                        ranks);
    return ITH_OK;
}

ith_blocks ith_machine_blocks(const ith_machine_view *view)
{
    int64_t process = 1;
    for (int i = 0; i < view->machine.level_count; i++)
        if (view->levels[i].shares_memory)
            process = view->joined[i];
    return (ith_blocks){(int)ith_common_divisor(process, view->ranks),
                        (int)ith_common_divisor(view->host_ranks, view->ranks)};
}

int ith_machine_level_between(const ith_machine_view *view, int64_t a, int64_t b)
{
    int level = 0;
    while (level < view->machine.level_count - 1 && a / view->joined[level] != b / view->joined[level])
        level++;
    return level;
}

void ith_machine_joined(const ith_machine_view *view, int level, int64_t rank, int64_t *begin, int64_t *end)
{
    *begin = rank;
    *end = rank + 1;
    for (int i = 0; i <= level; i++) {
        int64_t joined = view->joined[i], first = rank / joined * joined;
        *begin = ith_min64(*begin, first);
        *end = ith_min64(ith_max64(*end, first + joined), view->ranks);
    }
}
