/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the transport that connects the processes of a launcher (launcher.h). */
#include "launcher.h"

#include "../cli.h"
#include "../support/module_name.h"
#include "launcher_kind.h"

#include <ithaca/ithaca.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(ith_launch_choices, member)
static const ith_option rows[] = {
    {.help = "Several processes, which mpirun, mpiexec or srun has started:"},
    {"transport", "auto|local|mpi",
     "How processes reach one another: by MPI, not at all (local), by a module that 'ithaca info' lists (its name, "
     "such as nccl), or by MPI if a launcher is recognised (auto)",
     ITH_OPTION_TEXT, .offset = AT(transport)},
    {"timeout", "SECONDS",
     "End the run when a rank gives no sign of life for this long (60 over several processes, 600 within one)",
     ITH_OPTION_NUMBER, .offset = AT(timeout), .least = 0.1, .most = 1e6},
    {"map", NULL, "Print where each rank runs: process, host, ranks, threads and cores", ITH_OPTION_FLAG,
     .offset = AT(map)},
    {.help = "Records of the run:"},
    {"trace", "FILE", "Write computing, waiting and exchanges of every rank as JSON for chrome://tracing or Perfetto",
     ITH_OPTION_TEXT, .offset = AT(trace)},
    {"flight-record", "FILE",
     "If the run fails, write the last operations of every rank (JSON lines); processes without rank 0 write FILE.RANK",
     ITH_OPTION_TEXT, .offset = AT(flight_record)},
};
#undef AT

int ith_launch_add_options(ith_option *table, int count, size_t offset)
{
    return ith_options_append(table, count, rows, sizeof rows / sizeof *rows, offset);
}

static ith_launcher describe(const ith_launcher_kind *kind)
{
    if (!kind)
        return (ith_launcher){.name = "no launcher", .processes = 1};
    return (ith_launcher){.name = kind->name,
                          .process = ith_launcher_number(kind->process, 0),
                          .processes = ith_launcher_processes(kind)};
}

/* ---- Modules ----------------------------------------------------------------------------------------------------- */

/* Whether the module of a transport was found. *refusal: the reason why it cannot be used, "" if it can. */
static bool find_module(const char *name, const char **refusal)
{
    char found[64];
    const char *path;
    for (int i = 0; (path = ith_module_list(i, refusal)); i++)
        if (ith_cli_module_name(path, "transport", found, sizeof found) && !strcmp(found, name))
            return true;
    *refusal = "not found";
    return false;
}

/* Sets out->module to the first transport of the list that can be used. */
static int choose_module(const char *const *modules, ith_launcher *out)
{
    char reasons[768] = "";
    for (size_t length = 0; *modules; modules++) {
        const char *refusal;
        out->module = *modules;
        if (find_module(*modules, &refusal) && !*refusal)
            return ITH_EXIT_DONE;
        if (length < sizeof reasons)
            length += (size_t)snprintf(reasons + length, sizeof reasons - length, "; %s: %s", *modules, refusal);
    }
    out->module = NULL;
    if (out->processes == 1)
        return ith_cli_error("no transport for MPI can be used%s; 'ithaca info' says where modules are looked for",
                             reasons);
    return ith_cli_error("%s started this process as number %d of %d, and no transport can connect them%s; 'ithaca "
                         "info' says where modules are looked for, and --transport local makes a run of each process",
                         out->name, out->process, out->processes, reasons);
}

/* Chooses the transport for MPI: the one that ITHACA_MPI names, or one for the launcher. */
static int choose_mpi(const ith_launcher_kind *kind, ith_launcher *out)
{
    static const char *const all[] = {"openmpi", "mpich", NULL};
    const char *named = getenv("ITHACA_MPI");
    const char *const one[] = {named, NULL};
    if (named && strcmp(named, all[0]) != 0 && strcmp(named, all[1]) != 0)
        return ith_cli_error("ITHACA_MPI is '%s'; it names openmpi or mpich", named);
    if (!named && kind && !kind->modules[0])
        return ith_cli_error("srun started this process as number %d of %d without MPI: start it with 'srun "
                             "--mpi=pmix', or with --transport local, which makes a run of each process",
                             out->process, out->processes);
    return choose_module(named ? one : kind ? kind->modules : all, out);
}

/* Chooses the transport of a module that is not one of MPI's. */
static int choose_named(const char *command, const char *transport, ith_launcher *out)
{
    const char *const one[] = {transport, NULL};
    const char *refusal;
    if (!find_module(transport, &refusal))
        return ith_cli_usage(
            command, "--transport: '%s' is none of auto, local, mpi, nor a module that 'ithaca info' lists", transport);
    *out = describe(ith_launcher_recognise_any());
    out->where = getenv("ITHACA_TRANSPORT_WHERE");
    return choose_module(one, out);
}

bool ith_launcher_is_alone(const char *transport)
{
    bool automatic = !transport || !strcmp(transport, "auto");
    return automatic ? describe(ith_launcher_recognise()).processes == 1 : !strcmp(transport, "local");
}

int ith_launcher_find(const char *command, const char *transport, ith_launcher *out)
{
    const ith_launcher_kind *kind = ith_launcher_recognise();
    *out = describe(kind);
    bool automatic = !transport || !strcmp(transport, "auto");
    if (ith_launcher_is_alone(transport)) {
        *out = describe(NULL);
        return ITH_EXIT_DONE;
    }
    return automatic || !strcmp(transport, "mpi") ? choose_mpi(kind, out) : choose_named(command, transport, out);
}
