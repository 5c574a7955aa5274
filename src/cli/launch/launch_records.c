/* SPDX-License-Identifier: Apache-2.0 */
/* Starts, gathers and writes the trace and the flight record of a run (launch_records.h). */
#include "launch_records.h"

#include "../cli.h"
#include "../file/output_name.h"

#include <limits.h>
#include <stdio.h>

#define TRACE_EVENTS (1 << 18) /* the most time intervals and counter values that a process records */

int ith_records_begin(const ith_launch *launch, ith_context *context)
{
    const ith_launch_choices *c = &launch->choices;
    int code = ITH_EXIT_DONE;
    if (launch->leads)
        code = ith_cli_check_output(c->trace);
    if (!code && launch->leads)
        code = ith_cli_check_output(c->flight_record);
    if (!code && c->trace && ith_trace_start(context, TRACE_EVENTS))
        code = ith_cli_error("%s", ith_context_error(context));
    return code;
}

ith_status ith_records_restart(const ith_launch *launch, ith_context *context)
{
    return launch->choices.trace ? ith_trace_start(context, TRACE_EVENTS) : ITH_OK;
}

/* Whether rank 0 has --trace. A process may have other options than rank 0. */
static ith_status ask_rank_0(const ith_launch *launch, ith_comm *comm, bool *traces)
{
    *traces = launch->choices.trace != NULL;
    return ith_comm_broadcast(comm, traces, sizeof *traces, 0);
}

ith_status ith_records_align(const ith_launch *launch, ith_comm *comm)
{
    bool traces;
    ith_status status = ask_rank_0(launch, comm, &traces);
    return status || !traces ? status : ith_trace_align(comm);
}

ith_status ith_records_gather(const ith_launch *launch, ith_comm *comm)
{
    bool traces;
    ith_status status = ask_rank_0(launch, comm, &traces);
    return status || !traces ? status : ith_trace_gather(comm);
}

/* Writes one file of this process by `save`. path: the value of the option; NULL: it was not given. */
static int save_as(const ith_launch *launch, ith_context *context, int rank, const char *path,
                   ith_status (*save)(ith_context *context, const char *path))
{
    char own[PATH_MAX];
    if (!path)
        return ITH_EXIT_DONE;
    int length = launch->leads ? snprintf(own, sizeof own, "%s", path) : snprintf(own, sizeof own, "%s.%d", path, rank);
    if (length >= (int)sizeof own)
        return ith_cli_error("'%.100s...' is too long for the name of a file", path);
    return save(context, own) ? ith_cli_error("%s", ith_context_error(context)) : ITH_EXIT_DONE;
}

int ith_records_end(const ith_launch *launch, ith_context *context, int rank, bool failed)
{
    const ith_launch_choices *c = &launch->choices;
    int code = ITH_EXIT_DONE, saved = ITH_EXIT_DONE;
    if (failed)
        code = save_as(launch, context, rank, c->flight_record, ith_flight_save);
    if (failed || launch->leads)
        saved = save_as(launch, context, rank, c->trace, ith_trace_save);
    return code ? code : saved;
}
