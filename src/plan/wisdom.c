/* SPDX-License-Identifier: Apache-2.0 */
/* Wisdom in memory (wisdom.h). */
#include "wisdom.h"

#include "../base/size.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ith_status ith_wisdom_open(ith_context *context, ith_wisdom **out)
{
    *out = ith_context_lock_wisdom(context, sizeof **out);
    return *out ? ITH_OK : ITH_ERR_MEMORY;
}

void ith_wisdom_close(ith_context *context)
{
    ith_context_unlock_wisdom(context);
}

/* Entry i of the list, where entry 0 is the oldest. The list is a ring buffer, in which new entries replace the
 * oldest. */
const ith_wisdom_entry *ith_wisdom_at(const ith_wisdom *w, int64_t i)
{
    int64_t oldest = ith_max64(w->count - ITH_WISDOM_ENTRIES, 0);
    return oldest + i < w->count ? &w->entries[(oldest + i) % ITH_WISDOM_ENTRIES] : NULL;
}

const ith_wisdom_entry *ith_wisdom_find(const ith_wisdom *w, const char *subject)
{
    const ith_wisdom_entry *entry;
    for (int64_t i = 0; (entry = ith_wisdom_at(w, i)); i++)
        if (!strcmp(entry->subject, subject))
            return entry;
    return NULL;
}

void ith_wisdom_put(ith_wisdom *w, const ith_wisdom_entry *entry)
{
    const ith_wisdom_entry *known = ith_wisdom_find(w, entry->subject);
    int64_t slot = known ? known - w->entries : w->count++ % ITH_WISDOM_ENTRIES;
    w->entries[slot] = *entry;
}

int32_t ith_wisdom_number(double value)
{
    return (int32_t)fmin(fmax(value, 1), ITH_WISDOM_MOST);
}

void ith_wisdom_add(ith_wisdom_entry *entry, const char *name, double value)
{
    ith_wisdom_figure *figure = &entry->figures[entry->count++];
    snprintf(figure->name, sizeof figure->name, "%s", name);
    figure->value = ith_wisdom_number(value);
}

int64_t ith_wisdom_value(const ith_wisdom_entry *entry, const char *name)
{
    for (int i = 0; entry && i < entry->count; i++)
        if (!strcmp(entry->figures[i].name, name))
            return entry->figures[i].value;
    return 0;
}
