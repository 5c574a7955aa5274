/* SPDX-License-Identifier: Apache-2.0 */
#include "wisdom.h"

#include "../base/size.h"

ith_status ith_wisdom_open(ith_context *context, ith_wisdom **out)
{
    *out = ith_context_lock_wisdom(context, sizeof **out);
    return *out ? ITH_OK : ITH_ERR_MEMORY;
}

void ith_wisdom_close(ith_context *context)
{
    ith_context_unlock_wisdom(context);
}

const ith_wisdom_entry *ith_wisdom_at(const ith_wisdom *w, int64_t i)
{
    int64_t oldest = ith_max64(w->count - ITH_WISDOM_ENTRIES, 0);
    return oldest + i < w->count ? &w->entries[(oldest + i) % ITH_WISDOM_ENTRIES] : NULL;
}

const ith_wisdom_entry *ith_wisdom_find(const ith_wisdom *w, ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    const ith_wisdom_entry *entry;
    for (int64_t i = 0; (entry = ith_wisdom_at(w, i)); i++)
        if (entry->dtype == dtype && entry->head_dim == head_dim && entry->softmax == softmax)
            return entry;
    return NULL;
}

void ith_wisdom_put(ith_wisdom *w, const ith_wisdom_entry *entry)
{
    const ith_wisdom_entry *known = ith_wisdom_find(w, entry->dtype, entry->head_dim, entry->softmax);
    int64_t slot = known ? known - w->entries : w->count++ % ITH_WISDOM_ENTRIES;
    w->entries[slot] = *entry;
}
