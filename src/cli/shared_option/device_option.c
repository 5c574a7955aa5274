/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the device of a context by its name, and lists the devices of all modules ithaca_device_NAME.so. */
#include "device_option.h"

#include "../cli.h"
#include "../support/json_print.h"
#include "../support/module_name.h"

#include <stdio.h>
#include <string.h>

int ith_device_choose(ith_context *context, const char *command, const char *name)
{
    if (!name)
        return ITH_EXIT_DONE;
    const ith_status status = ith_context_use_device(context, name);
    if (status == ITH_ERR_ARGUMENT)
        return ith_cli_usage(command, "--device: %s", ith_context_error(context));
    return status ? ith_cli_error("%s", ith_context_error(context)) : ITH_EXIT_DONE;
}

bool ith_device_in_use(ith_context *context, ith_device_info *info)
{
    *info = (ith_device_info)ITH_DEVICE_INFO_INIT;
    return !ith_device_describe(context, info) && strcmp(info->name, "cpu") != 0;
}

static void add_row(json_t *list, const char *name, const char *about)
{
    json_array_append_new(list, ith_cli_json_about(name, about));
}

/* Adds the device `name`, which a context uses, to a list. path: its module. */
static void add_device(json_t *list, ith_context *context, const char *name, const char *path)
{
    ith_device_info info;
    char about[512], capability[48] = "";
    if (!ith_device_in_use(context, &info)) {
        add_row(list, name, ith_context_error(context));
        return;
    }
    if (info.capability > 0)
        snprintf(capability, sizeof capability, ", compute capability %d.%d", (int)(info.capability / 10),
                 (int)(info.capability % 10));
    snprintf(about, sizeof about, "%s%s, %lld processor%s, %.1f GB of memory (%.1f GB free), by %.300s",
             info.description, capability, (long long)info.processors, ith_cli_plural(info.processors),
             (double)info.memory_bytes / 1e9, (double)info.free_bytes / 1e9, path);
    add_row(list, name, about);
}

/* Adds the devices of one module, NAME:0, NAME:1, .., or the reason why the first one cannot be used. */
static void add_devices(json_t *list, ith_context *context, const char *module, const char *path)
{
    char name[64];
    ith_status status = ITH_OK;
    for (int index = 0; !status; index++) {
        snprintf(name, sizeof name, "%.32s:%d", module, index);
        status = ith_context_use_device(context, name);
        if (!status)
            add_device(list, context, name, path);
        else if (index == 0)
            add_row(list, module, ith_context_error(context));
    }
}

json_t *ith_device_list(void)
{
    json_t *list = json_array();
    ith_context *context = NULL;
    const char *path;
    if (ith_cli_context(ITH_TALK_QUIET, &context))
        return list;
    for (int i = 0; (path = ith_module_list(i, NULL)); i++) {
        char module[33];
        if (ith_cli_module_name(path, "device", module, sizeof module))
            add_devices(list, context, module, path);
    }
    if (!json_array_size(list)) /* the sentence of the failure says how to get a module */
        add_row(list, "cuda", ith_context_use_device(context, "cuda") ? ith_context_error(context) : "");
    ith_context_destroy(&context);
    return list;
}
