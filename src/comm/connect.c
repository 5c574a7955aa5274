/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators on transports that are loaded from shared modules (ith_comm_connect). */
#include "comm.h"

#include <stdio.h>
#include <string.h>

_Static_assert(offsetof(ith_transport_module, name) == offsetof(ith_module_head, name),
               "a transport's table does not begin like every module's");

ith_module_kind ith_transport_modules = {
    .name = "transport", .symbol = "ith_transport_module_table", .abi = ITH_TRANSPORT_MODULE_ABI};

/* Finds the table of the module ithaca_transport_NAME.so. */
static ith_status find_module(ith_context *context, const char *name, const ith_transport_module **out)
{
    const ith_module *module;
    char file[256];
    int length = snprintf(file, sizeof file, "/ithaca_transport_%s.so", name);
    for (int i = 0; length < (int)sizeof file && (module = ith_module_at(&ith_transport_modules, i)) != NULL; i++) {
        *out = (const ith_transport_module *)module->table;
        if (strcmp(strrchr(module->path, '/'), file))
            continue;
        if (!*out)
            return ith_fail(context, ITH_ERR_UNSUPPORTED, "the transport %s: %s: %s", name, module->path,
                            module->refusal);
        if (!(*out)->transport || !(*out)->connect)
            return ith_fail(context, ITH_ERR_UNSUPPORTED, "the transport %s: %s lacks its table or connect", name,
                            module->path);
        return ITH_OK;
    }
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "no module ithaca_transport_%.100s.so was found: it lies in the folder that ITHACA_PLUGIN_PATH "
                    "names, otherwise in ithaca/ beside the library or beside the library itself",
                    name);
}

ith_status ith_comm_connect(ith_context *context, const char *name, const char *where, ith_comm **out)
{
    const ith_transport_module *module = NULL;
    char sentence[ITH_ERROR_BYTES] = "";
    void *state = NULL;
    int rank = 0, size = 0;
    if (out)
        *out = NULL;
    ith_status status = ith_need(context, name, "name");
    if (!context)
        status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, out, "out");
    if (!status)
        status = find_module(context, name, &module);
    if (status)
        return status;
    status = module->connect(where, &state, &rank, &size, sentence, sizeof sentence);
    if (status)
        return ith_fail(context, status < 0 && status >= ITH_ERR_INTERNAL ? status : ITH_ERR_INTERNAL,
                        "the transport %s did not connect: %s", name, sentence[0] ? sentence : "it did not say why");
    status = ith_comm_create(context, module->transport, state, rank, size, out);
    if (status && module->transport->close)
        module->transport->close(state);
    return status;
}
