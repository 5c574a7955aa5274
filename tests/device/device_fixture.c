/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device_fixture.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *device_name;
const ith_device_use *device_use;
fake_control_table *device_fake;

/* The module that serves the device. */
static const char *module_path(void)
{
    const ith_module *module = NULL;
    for (int i = 0; (module = ith_module_at(&ith_device_modules, i)); i++)
        if (module->table == &device_use->module->head)
            return module->path;
    return NULL;
}

void device_require(void)
{
    ith_context *own = NULL;
    ith_device_info info = ITH_DEVICE_INFO_INIT;
    device_name = getenv("ITHACA_TEST_DEVICE");
    device_name = device_name ? device_name : "cuda";
    ith_status status = ith_context_create(NULL, &own);
    if (!status)
        status = ith_context_use_device(own, device_name);
    if (!status)
        status = ith_device_describe(own, &info);
    if (status) {
        printf("%s: %s\n", status == ITH_ERR_UNSUPPORTED ? "skipped" : "FAILED", ith_context_error(own));
        exit(status == ITH_ERR_UNSUPPORTED ? 77 : 1);
    }
    device_use = ith_context_device_use(own);
    if (!strncmp(device_name, "fake", 4))
        device_fake = dlsym(dlopen(module_path(), RTLD_NOW | RTLD_LOCAL), "fake_control");
    printf("device: %s, %s, %.1f GB free\n", info.name, info.description, (double)info.free_bytes / 1e9);
    fflush(stdout);
    ith_context_destroy(&own);
}

int device_context_set_up(void **state)
{
    (void)state;
    const ith_status status = ith_context_create(NULL, &context);
    return status ? status : ith_context_use_device(context, device_name);
}

int64_t device_free_bytes(void)
{
    ith_device_info info = ITH_DEVICE_INFO_INIT;
    check(context, ith_device_describe(context, &info));
    return info.free_bytes;
}
