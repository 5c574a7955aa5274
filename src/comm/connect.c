/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators on transports that are loaded from shared modules (ith_comm_connect, ith_run_ranks_connected). */
#include "comm.h"

#include "ranks.h"

#define CONNECT_SECONDS 60.0 /* the default of ith_context_set_connect_timeout */

_Static_assert(offsetof(ith_transport_module, name) == offsetof(ith_module_head, name),
               "a transport's table does not begin like every module's");

static const char *find_fault(const ith_module_head *table)
{
    const ith_transport_module *module = (const ith_transport_module *)table;
    return module->transport && module->connect ? NULL : "it lacks its table or connect";
}

ith_module_kind ith_transport_modules = {.name = "transport",
                                         .symbol = "ith_transport_module_table",
                                         .abi = ITH_TRANSPORT_MODULE_ABI,
                                         .find_fault = find_fault};

void ith_context_set_connect_timeout(ith_context *context, double seconds)
{
    if (context)
        ith_context_set_connect_limit(context, seconds);
}

/* Finds the table of the module ithaca_transport_NAME.so. */
static ith_status find_module(ith_context *context, const char *name, const ith_transport_module **out)
{
    const ith_module *module = ith_module_named(&ith_transport_modules, name);
    *out = module ? (const ith_transport_module *)module->table : NULL;
    if (*out)
        return ITH_OK;
    if (module)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "the transport %s: %s: %s", name, module->path, module->refusal);
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "no module ithaca_transport_%.100s.so was found in the folder that ITHACA_PLUGIN_PATH names, or, "
                    "without that variable, in ithaca/ beside the library and beside the library itself",
                    name);
}

/* The arguments of connect_ranks and its memory: the state and the number of each rank of this process. */
typedef struct connection {
    const char *name, *where;
    void **states;
    int *numbers;
} connection;

/* Connects all ranks of this process (ith_ranks_make). user: a connection. */
static ith_status connect_ranks(void *user, ith_context *const *contexts, int ranks, ith_comm **comms)
{
    const connection *c = user;
    const ith_transport_module *module = NULL;
    char sentence[ITH_ERROR_BYTES] = "";
    int size = 0;
    double seconds = ith_context_connect_limit(contexts[0]);
    ith_status status = find_module(contexts[0], c->name, &module);
    if (status)
        return status;
    status = module->connect(c->where, ranks, seconds > 0 ? seconds : CONNECT_SECONDS, c->states, c->numbers, &size,
                             sentence, sizeof sentence);
    if (status)
        return ith_fail(contexts[0], ith_failure_of(status), "the transport %s did not connect: %s", c->name,
                        sentence[0] ? sentence : "it did not say why");
    return ith_comm_create_all(contexts, ranks, module->transport, c->states, c->numbers, size, comms);
}

ith_status ith_comm_connect(ith_context *context, const char *name, const char *where, ith_comm **out)
{
    void *state = NULL;
    int number = 0;
    connection c = {name, where, &state, &number};
    if (out)
        *out = NULL;
    ith_status status = ith_need_to_make(context, name, "name", out);
    return status ? status : connect_ranks(&c, &context, 1, out);
}

ith_status ith_run_ranks_connected(ith_context *context, const char *name, const char *where, int ranks, int threads,
                                   ith_rank_fn fn, void *user)
{
    connection c = {.name = name, .where = where};
    if (!context)
        return ith_need(NULL, context, "context");
    ith_status status = ith_need(context, name, "name");
    if (!status)
        status = ith_ranks_check(context, ranks, threads, fn);
    if (status)
        return status;
    c.states = ith_alloc_zero(context, ranks, sizeof *c.states, "the ranks");
    c.numbers = ith_alloc_zero(context, ranks, sizeof *c.numbers, "the ranks");
    status = c.states && c.numbers ? ITH_OK : ITH_ERR_MEMORY;
    if (!status)
        status = ith_ranks_run(context, connect_ranks, &c, ranks, threads, fn, user);
    ith_free(context, c.numbers);
    ith_free(context, c.states);
    return status;
}
