/* SPDX-License-Identifier: Apache-2.0 */
/* The module: one rank for each GPU, whose processes meet through files, or through MPI.
 *
 *     file:PATH   a path in a folder that all processes see; each has a number in its environment (file_meeting.h)
 *     mpi         the processes of a launcher of MPI
 *
 * Without either, ITHACA_TRANSPORT_WHERE has one of them, or a launcher of MPI has started the processes. Messages
 * between hosts' memories then go over TCP, or over that MPI. */
#include "file_meeting.h"
#include "nccl_state.h"

#include "../wire/wire.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* The arguments of connect_ranks. */
typedef struct meeting {
    int ranks;
    double seconds;
    void **states;
    int *numbers, *size;
    char *sentence;
    size_t bytes;
} meeting;

/* ---- The inner transport ----------------------------------------------------------------------------------------- */

static ith_status meet_at_file(const meeting *m, const char *path)
{
    tcp_party party = {.process = 0};
    ith_link link;
    ith_status status = ith_file_meet(path, m->ranks, m->seconds, &party, m->sentence, m->bytes);
    if (status)
        return status;
    if (!ith_tcp_link_create(&party, &link)) {
        snprintf(m->sentence, m->bytes, "no memory for the buffers of %d processes", party.processes);
        ith_tcp_party_close(&party);
        return ITH_ERR_MEMORY;
    }
    status = ith_wire_open(&link, m->states, m->numbers, m->size, m->sentence, m->bytes);
    if (status)
        link.close(link.self, true);
    return status;
}

/* Finds the module of an MPI in the folder of this module. */
static const ith_transport_module *find_module(const meeting *m, const char *name)
{
    Dl_info self;
    char path[PATH_BYTES];
    const char *slash =
        dladdr((void *)(uintptr_t)&find_module, &self) && self.dli_fname ? strrchr(self.dli_fname, '/') : NULL;
    int folder = slash ? (int)(slash - self.dli_fname) : 1;
    snprintf(path, sizeof path, "%.*s/ithaca_transport_%s.so", folder, slash ? self.dli_fname : ".", name);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const ith_transport_module *module = handle ? dlsym(handle, "ith_transport_module_table") : NULL;
    if (!module) {
        const char *reason = dlerror();
        snprintf(m->sentence, m->bytes, "the transport %s cannot be loaded: %s", name, reason ? reason : path);
        return NULL;
    }
    const ith_transport *t = module->abi == ITH_TRANSPORT_MODULE_ABI ? module->transport : NULL;
    if (t && t->struct_size == sizeof *t && t->requests == ITH_TRANSPORT_LEAST_REQUESTS && t->leave && t->alive &&
        t->silence && t->notify && t->share && t->place)
        return module;
    snprintf(m->sentence, m->bytes, "the transport %s is of another version than the transport nccl", name);
    return NULL;
}

/* The module of the MPI whose launcher has started this process; NULL: none has. */
static const char *find_mpi(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") ? "openmpi" : getenv("PMI_SIZE") ? "mpich" : NULL;
}

static ith_status meet_over_mpi(const meeting *m, const ith_transport **inner)
{
    const char *name = find_mpi();
    if (!name) {
        snprintf(m->sentence, m->bytes,
                 "where is \"mpi\", but no launcher of Open MPI or MPICH has started this process: use mpirun, or "
                 "file:PATH");
        return ITH_ERR_UNSUPPORTED;
    }
    const ith_transport_module *module = find_module(m, name);
    if (!module)
        return ITH_ERR_UNSUPPORTED;
    *inner = module->transport;
    return module->connect(NULL, m->ranks, m->seconds, m->states, m->numbers, m->size, m->sentence, m->bytes);
}

/* ---- The module -------------------------------------------------------------------------------------------------- */

/* Replaces the inner states by states of this transport. */
static ith_status wrap(const meeting *m, const ith_transport *inner)
{
    int made = 0;
    for (; made < m->ranks; made++) {
        void *state = ith_nccl_open(inner, m->states[made], m->numbers[made], *m->size, m->seconds);
        if (!state)
            break;
        m->states[made] = state;
    }
    if (made == m->ranks)
        return ITH_OK;
    snprintf(m->sentence, m->bytes, "no memory for %d ranks", *m->size);
    inner->abort(m->states[made], ITH_ERR_MEMORY, m->sentence);
    for (int i = 0; i < m->ranks; i++) {
        const ith_transport *t = i < made ? &ith_nccl_transport : inner;
        t->leave(m->states[i]);
    }
    for (int i = 0; i < m->ranks; i++)
        (i < made ? &ith_nccl_transport : inner)->close(m->states[i]);
    return ITH_ERR_MEMORY;
}

static ith_status connect_ranks(const char *where, int ranks, double seconds, void **states, int *numbers, int *size,
                                char *sentence, size_t bytes)
{
    const meeting m = {ranks, seconds, states, numbers, size, sentence, bytes};
    const ith_transport *inner = &ith_wire_transport;
    const char *named = where ? where : getenv("ITHACA_TRANSPORT_WHERE"), *place = named || !find_mpi() ? named : "mpi";
    ith_status status = ITH_OK;
    if (!ith_nccl_load(sentence, bytes))
        return ITH_ERR_UNSUPPORTED;
    if (place && !strncmp(place, "file:", 5))
        status = meet_at_file(&m, place + 5);
    else if (place && !strcmp(place, "mpi"))
        status = meet_over_mpi(&m, &inner);
    else {
        snprintf(sentence, bytes,
                 "where is \"%.100s\": file:PATH, with a path in a folder that all processes see, or mpi is needed, "
                 "here or in the variable ITHACA_TRANSPORT_WHERE",
                 place ? place : "");
        status = ITH_ERR_ARGUMENT;
    }
    return status ? status : wrap(&m, inner);
}

extern ITH_API const ith_transport_module ith_transport_module_table;
const ith_transport_module ith_transport_module_table = {
    .abi = ITH_TRANSPORT_MODULE_ABI, .name = "nccl", .transport = &ith_nccl_transport, .connect = connect_ranks};
