/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine_ranks.h"

typedef struct engine_run {
    ith_pipeline *pipeline;
    const ith_generate_options *options;
    ith_generate_report *report; /* of rank 0 */
} engine_run;

static ith_status engine_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)context;
    const engine_run *run = user;
    return ith_pipeline_generate(run->pipeline, comm, run->options, ith_comm_rank(comm) ? NULL : run->report);
}

ith_status engine_generate(ith_context *context, ith_pipeline *pipeline, int ranks, const ith_generate_options *options,
                           ith_generate_report *report)
{
    engine_run run = {pipeline, options, report};
    if (ranks == 1)
        return ith_pipeline_generate(pipeline, NULL, options, report);
    return ith_run_ranks(context, ranks, options->threads, engine_rank, &run);
}
