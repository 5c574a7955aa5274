/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of names that all components share (module_names.h). */
#include "module_names.h"

#include <stdio.h>
#include <string.h>

const char *ith_name_after(const char *name, const char *prefix)
{
    const size_t length = strlen(prefix);
    return strncmp(name, prefix, length) ? NULL : name + length;
}

const char *ith_module_rename(const ith_module_name *modules, int count, const char *head, const char *name,
                              char space[ITH_STORE_NAME_BYTES])
{
    for (int i = 0; i < count; i++) {
        const char *rest = ith_name_after(name, modules[i].other);
        if (!rest || (*rest && *rest != '.'))
            continue;
        const int length = snprintf(space, ITH_STORE_NAME_BYTES, "%s%s%s", head, modules[i].canonical, rest);
        return length < ITH_STORE_NAME_BYTES ? space : NULL;
    }
    return NULL;
}

const char *ith_name_number(const char *name, int *number)
{
    const char *end = name;
    for (*number = 0; *end >= '0' && *end <= '9' && end - name < 4; end++)
        *number = *number * 10 + (*end - '0');
    return end > name && *end == '.' ? end + 1 : NULL;
}
