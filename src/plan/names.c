/* SPDX-License-Identifier: Apache-2.0 */
/* The names of choices, and the names that other software has for strategies.
 *
 * A strategy's name is [tokamax_] BASE {_custom | _bidir | _fixed_m}, the endings in any order, each once. BASE is one
 * of ours or of maxdiffusion's; "tokamax_" and "_custom" say which kernel maxdiffusion takes, which is no choice here.
 */
#include "../base/sized.h"

#include <string.h>

const char *ith_choice_name(ith_choice choice)
{
    static const char *const names[] = {"auto", "on", "off"};
    return (unsigned)choice < sizeof names / sizeof *names ? names[choice] : "unknown";
}

const char *ith_softmax_name(ith_softmax softmax)
{
    static const char *const names[] = {"auto", "online", "fixed_m"};
    return (unsigned)softmax < sizeof names / sizeof *names ? names[softmax] : "unknown";
}

const char *ith_direction_name(ith_direction direction)
{
    static const char *const names[] = {"auto", "uni", "bidir"};
    return (unsigned)direction < sizeof names / sizeof *names ? names[direction] : "unknown";
}

const char *ith_exchange_mode_name(ith_exchange_mode mode)
{
    static const char *const names[] = {"auto", "in_place", "copy"};
    return (unsigned)mode < sizeof names / sizeof *names ? names[mode] : "unknown";
}

const char *ith_effort_name(ith_effort effort)
{
    static const char *const names[] = {"estimate", "measure"};
    return (unsigned)effort < sizeof names / sizeof *names ? names[effort] : "unknown";
}

const char *ith_kernel_origin_name(ith_kernel_origin origin)
{
    static const char *const names[] = {"named", "estimate", "wisdom", "measured"};
    return (unsigned)origin < sizeof names / sizeof *names ? names[origin] : "unknown";
}

/* ---- Strategies ------------------------------------------------------------------------------------------------ */

typedef struct strategy_base {
    const char *name;
    ith_strategy strategy;
    bool has_ring, has_kernels; /* takes _bidir; takes tokamax_ and _custom */
} strategy_base;

/* The first that fits the beginning is taken: longer ones before those that they begin with. */
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

/* Moves *text past `part`, if it begins with that and the part ends there. */
static bool take(const char **text, const char *part)
{
    size_t length = strlen(part);
    if (strncmp(*text, part, length) || ((*text)[length] != '\0' && (*text)[length] != '_'))
        return false;
    *text += length;
    return true;
}

static const strategy_base *take_base(const char **text)
{
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        if (take(text, bases[i].name))
            return &bases[i];
    return NULL;
}

/* The endings that the rest of a name consists of; -1 if it has anything else, or one of them twice. */
static int take_endings(const char *text)
{
    static const char *const endings[] = {"_custom", "_bidir", "_fixed_m"};
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

ith_status ith_strategy_parse(ith_context *context, const char *name, ith_attn_options *options)
{
    if (!context)
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "the context is NULL");
    ith_attn_options all = ITH_ATTN_OPTIONS_INIT;
    ith_status status = ITH_SIZED_READ(context, ith_attn_options, ITH_ATTN_OPTIONS_INIT, options, &all);
    if (status)
        return status;
    if (!name)
        return ith_fail(context, ITH_ERR_ARGUMENT, "the name is NULL");
    const char *rest = name;
    bool tokamax = !strncmp(rest, "tokamax_", 8);
    rest += tokamax ? 8 : 0;
    const strategy_base *base = take_base(&rest);
    int endings = base ? take_endings(rest) : -1;
    if (endings < 0 || ((tokamax || (endings & ENDING_CUSTOM)) && !base->has_kernels))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "strategy '%.100s' is none of auto, single, ulysses, ring and ulysses_ring, with _bidir or "
                        "_fixed_m at its end or not, nor one of maxdiffusion's names",
                        name);
    if ((endings & ENDING_BIDIR) && !base->has_ring)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "strategy '%s' asks for a ring in both directions and has no ring: ring_bidir and "
                        "ulysses_ring_bidir have one",
                        name);
    all.strategy = base->strategy;
    if (endings & ENDING_BIDIR)
        all.direction = ITH_DIRECTION_BIDIR;
    if (endings & ENDING_FIXED_M)
        all.softmax = ITH_SOFTMAX_FIXED_M;
    return ITH_SIZED_FILL(context, ith_attn_options, ITH_ATTN_OPTIONS_INIT, options, &all);
}
