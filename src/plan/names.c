/* SPDX-License-Identifier: Apache-2.0 */
/* Names of choices, kernels, modules and strategies. A strategy may also have its name in maxdiffusion.
 *
 * The name of a strategy is [tokamax_] BASE {_custom | _bidir | _fixed_m}, with each ending at most once and in any
 * order. BASE is a name of this library or of maxdiffusion. "tokamax_" and "_custom" choose a kernel in maxdiffusion
 * and have no effect here. */
#include "../base/count.h"
#include "../base/cpu.h"
#include "../base/enum_name.h"
#include "../base/sized.h"
#include "../comm/comm.h"
#include "../kernels/device_use.h"
#include "../kernels/kernel.h"
#include "../kernels/kernel_module.h"
#include "../kernels/product.h"

#include <string.h>

const char *ith_choice_name(ith_choice value)
{
    static const char *const names[] = {"auto", "on", "off"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}

const char *ith_softmax_name(ith_softmax value)
{
    static const char *const names[] = {"auto", "online", "fixed_m"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}

const char *ith_direction_name(ith_direction value)
{
    static const char *const names[] = {"auto", "uni", "bidir"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}

const char *ith_exchange_mode_name(ith_exchange_mode value)
{
    static const char *const names[] = {"auto", "in_place", "copy", "mixed"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}

const char *ith_compress_name(ith_compress value)
{
    static const char *const names[] = {"off", "bf16", "8bit"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}

const char *ith_effort_name(ith_effort value)
{
    static const char *const names[] = {"estimate", "measure"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}

const char *ith_kernel_origin_name(ith_kernel_origin value)
{
    static const char *const names[] = {"named", "estimate", "wisdom", "measured"};
    return ith_enum_name(names, ITH_COUNT(names), (int)value);
}

/* ---- Lists ----------------------------------------------------------------------------------------------------- */

/* Kernel number `index` of a device. All its kernels count as usable. Planning finds out which problems they take. */
static const char *list_device_kernel(const ith_device_use *device, int index, bool *usable)
{
    int count = 0;
    while (device->module->kernels[count])
        count++;
    if (index < 0 || index >= count)
        return NULL;
    if (usable)
        *usable = true;
    return device->module->kernels[index]->name;
}

const char *ith_kernel_list(const ith_context *context, int index, bool *usable)
{
    const ith_device_use *device = context ? ith_context_device_use(context) : NULL;
    if (device)
        return list_device_kernel(device, index, usable);
    const ith_attn_kernel *kernel = index >= 0 ? ith_attn_kernel_at(index) : NULL;
    if (!kernel)
        return NULL;
    if (usable)
        *usable = context && ith_cpu_has(ith_context_cpu(context), kernel->cpu);
    return kernel->name;
}

const char *ith_product_list(const ith_context *context, int index, bool *usable)
{
    const ith_product_kernel *kernel = ith_product_kernel_at(index);
    if (!kernel)
        return NULL;
    if (usable)
        *usable = context && ith_cpu_has(ith_context_cpu(context), kernel->cpu);
    return kernel->name;
}

const char *ith_module_list(int index, const char **refusal)
{
    ith_module_kind *const kinds[] = {&ith_kernel_modules, &ith_transport_modules, &ith_device_modules};
    const ith_module *module = NULL;
    for (size_t i = 0; index >= 0 && !module && i < sizeof kinds / sizeof *kinds; i++) {
        int count = 0;
        while (ith_module_at(kinds[i], count))
            count++;
        module = ith_module_at(kinds[i], index);
        index -= count;
    }
    if (!module)
        return NULL;
    if (refusal)
        *refusal = module->refusal;
    return module->path;
}

/* ---- Strategies ------------------------------------------------------------------------------------------------ */

/* The base of a strategy's name, such as "ring" in "ring_bidir", and its strategy. */
typedef struct strategy_base {
    const char *name;
    ith_strategy strategy;
    bool has_ring, has_kernels; /* whether the name may end in _bidir; whether it may have tokamax_ and _custom */
} strategy_base;

/* take_base takes the first of these bases that a name begins with, so "ulysses_ring" must stand before "ulysses". */
static const strategy_base bases[] = {
    {"auto", ITH_STRATEGY_AUTO, true, false},
    {"single", ITH_STRATEGY_SINGLE, false, false},
    {"dot_product", ITH_STRATEGY_SINGLE, false, false},
    {"flash", ITH_STRATEGY_SINGLE, false, true},
    {"ulysses_ring", ITH_STRATEGY_ULYSSES_RING, true, true},
    {"ulysses", ITH_STRATEGY_ULYSSES, false, true},
    {"ring", ITH_STRATEGY_RING, true, true},
};

enum { ENDING_CUSTOM = 1, ENDING_BIDIR = 2, ENDING_FIXED_M = 4 };
static const char *const endings[] = {"_custom", "_bidir", "_fixed_m"}; /* in the order of their bits */

/* Moves *text past `part`, if *text begins with it and a word ends there. */
static bool take(const char **text, const char *part)
{
    size_t length = strlen(part);
    if (strncmp(*text, part, length) || ((*text)[length] != '\0' && (*text)[length] != '_'))
        return false;
    *text += length;
    return true;
}

/* Finds the base of a strategy's name, such as "ring" in "ring_bidir", at the beginning of *text, and moves *text past
 * it. Returns NULL if there is none. */
static const strategy_base *take_base(const char **text)
{
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        if (take(text, bases[i].name))
            return &bases[i];
    return NULL;
}

/* Reads the endings of a strategy's name, such as "_bidir_fixed_m", as bits. Returns -1 if `text` holds anything else,
 * or an ending twice. */
static int take_endings(const char *text)
{
    int taken = 0;
    while (*text) {
        int ending = 0;
        for (int i = 0; i < 3 && !ending; i++)
            ending = take(&text, endings[i]) ? 1 << i : 0;
        if (!ending || (taken & ending))
            return -1;
        taken |= ending;
    }
    return taken;
}

/* Sets the options that a strategy's name determines. Other options stay unchanged. */
ith_status ith_strategy_parse(ith_context *context, const char *name, ith_attn_options *options)
{
    if (!context)
        return ith_need(NULL, context, "context");
    ith_attn_options all = ITH_ATTN_OPTIONS_INIT;
    ith_status status = ITH_SIZED_READ(context, ith_attn_options, ITH_ATTN_OPTIONS_INIT, options, &all);
    if (status)
        return status;
    if (!name)
        return ith_need(context, name, "name");
    const char *rest = name;
    bool tokamax = !strncmp(rest, "tokamax_", 8);
    rest += tokamax ? 8 : 0;
    const strategy_base *base = take_base(&rest);
    int taken = base ? take_endings(rest) : -1;
    if (taken < 0 || ((tokamax || (taken & ENDING_CUSTOM)) && !base->has_kernels))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "strategy '%.100s' is none of auto, single, ulysses, ring and ulysses_ring, with _bidir or "
                        "_fixed_m at its end or not, nor one of maxdiffusion's names",
                        name);
    if ((taken & ENDING_BIDIR) && !base->has_ring)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "strategy '%s' asks for a ring in both directions and has no ring: ring_bidir and "
                        "ulysses_ring_bidir have one",
                        name);
    all.strategy = base->strategy;
    if (taken & ENDING_BIDIR)
        all.direction = ITH_DIRECTION_BIDIR;
    if (taken & ENDING_FIXED_M)
        all.softmax = ITH_SOFTMAX_FIXED_M;
    return ITH_SIZED_FILL(context, ith_attn_options, ITH_ATTN_OPTIONS_INIT, options, &all);
}
