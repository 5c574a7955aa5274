/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the time of each row of ithaca bench attention by the cost model, with the rates of this machine: from a
 * description (--machine, or the one that `ithaca tune` keeps), or measured in about a second. Over several processes
 * they are measured by all ranks together, because the links between the processes count. */
#include "bench_rows.h"

#include "../cli.h"
#include "../machine/machine_file.h"

#include <stdio.h>

/* The attention that is measured if there is no description: both softmaxes of the rows' type and head size. */
static ith_machine_case wanted_case(const ith_bench *bench)
{
    const ith_attn_problem *p = &bench->problems->whole.problem;
    return (ith_machine_case){sizeof(ith_machine_case), p->dtype, ITH_SOFTMAX_AUTO, p->head_dim};
}

/* Predicts the time of each row. A row of which the machine has no rates keeps NAN. */
static void predict_rows(ith_bench *bench, const ith_machine *machine)
{
    snprintf(bench->machine, sizeof bench->machine, "%s", machine->name);
    for (int i = 0; i < bench->row_count; i++) {
        ith_bench_row *row = &bench->rows[i];
        ith_attn_options options = row->options;
        ith_cost cost = ITH_COST_INIT;
        const int threads = row->ranks > 1 ? bench->threads : bench->threads_here; /* one rank runs in one process */
        options.threads = threads > row->ranks ? threads / row->ranks : 1;
        if (!ith_plan_cost(bench->context, &row->problem->whole.problem, &options, machine, row->ranks, NULL, &cost))
            row->predicted_seconds = cost.seconds;
    }
}

int ith_bench_predict(ith_bench *bench, const char *name)
{
    ith_machine machine = ITH_MACHINE_INIT;
    const ith_machine_case wanted = wanted_case(bench);
    int code = ith_machine_find(bench->context, name ? name : "local", &wanted, &machine);
    if (code)
        return code;
    predict_rows(bench, &machine);
    ith_machine_file_free(&machine);
    return ITH_EXIT_DONE;
}

ith_status ith_bench_predict_together(ith_bench *bench, ith_context *context, ith_comm *comm)
{
    ith_machine *machine = NULL;
    ith_measure_options options = ITH_MEASURE_OPTIONS_INIT;
    const ith_machine_case wanted = wanted_case(bench);
    options.cases = &wanted, options.case_count = 1;
    ith_status status = ith_machine_measure(context, &options, comm, &machine);
    if (!status && ith_comm_rank(comm) == 0)
        predict_rows(bench, machine);
    ith_machine_free(&machine);
    return status;
}
