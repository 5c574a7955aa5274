/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a run as <ithaca/wan.h> offers it: predicted for a pipeline before its ranks exist. */
#include "run_memory.h"

#include "../../../base/context.h"
#include "../../../base/size.h"
#include "../../../base/team_limit.h"
#include "../request.h"
#include "../saved_run.h"

/* Resolved options, and the ranks of this process. */
typedef struct request {
    ith_generate_options options;
    ith_request_parts parts;
    ith_saved_run *saved;
    ith_team team;
} request;

static bool is_denoised(const request *asked)
{
    return ith_saved_run_is_denoised(asked->saved, &asked->options);
}

/* Checks the options and the numbers of ranks, and fills in the request. The caller closes out->saved. */
static ith_status read_request(ith_pipeline *pipeline, const ith_generate_options *given, int ranks, int ranks_here,
                               request *out)
{
    ith_context *context = pipeline->context;
    ith_status status = ITH_OK;
    *out = (request){.team = {.ranks = ranks,
                              .host_processes = 1,
                              .first_on_host = true,
                              .count = ranks_here,
                              .shares_memory = ranks == ranks_here}};
    if (ranks_here < 1 || ranks_here > ranks)
        status = ith_fail(context, ITH_ERR_ARGUMENT,
                          "ranks is %d and ranks_here %d; there is at least one rank here, and no more than there are",
                          ranks, ranks_here);
    if (!status)
        out->team.processes = out->team.hosts = (int)ith_div_up(ranks, ranks_here);
    if (!status)
        status = ith_thread_limit_check(context, "the number of ranks in this process", ranks_here);
    if (!status)
        status = ith_request_read(pipeline, context, given, true, &out->options, &out->parts, &out->saved);
    if (!status)
        status = ith_request_check_ranks(context, &out->options, ranks);
    return status ? status : ith_settle_device_memory(context, &out->options);
}

/* Fills in the request, and predicts the memory of this process, without its device. */
static ith_status predict_request(ith_pipeline *pipeline, const ith_generate_options *given, int ranks, int ranks_here,
                                  const ith_machine_memory *memory, request *out, int64_t *bytes)
{
    ith_status status = read_request(pipeline, given, ranks, ranks_here, out);
    return status ? status
                  : ith_predict_settled(pipeline, pipeline->context, &out->options, is_denoised(out), &out->team,
                                        memory, bytes);
}

ith_status ith_pipeline_predict(ith_pipeline *pipeline, const ith_generate_options *options, int ranks, int ranks_here,
                                int64_t *bytes)
{
    request asked = {0};
    int64_t predicted = 0;
    const ith_machine_memory memory = ith_machine_memory_read("");
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_status status = ith_need(pipeline->context, bytes, "bytes");
    if (!status)
        status = predict_request(pipeline, options, ranks, ranks_here, &memory, &asked, &predicted);
    if (!status)
        *bytes = predicted;
    ith_saved_run_close(pipeline->context, &asked.saved);
    return status;
}

ith_status ith_pipeline_predict_device(ith_pipeline *pipeline, const ith_generate_options *options, int ranks,
                                       int ranks_here, int64_t *bytes)
{
    request asked = {0};
    ith_device_need need = {.bytes = 0};
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_status status = ith_need(pipeline->context, bytes, "bytes");
    if (!status)
        status = read_request(pipeline, options, ranks, ranks_here, &asked);
    if (!status)
        status =
            ith_predict_device(pipeline, pipeline->context, &asked.options, is_denoised(&asked), &asked.team, &need);
    if (!status)
        *bytes = need.bytes;
    ith_saved_run_close(pipeline->context, &asked.saved);
    return status;
}

ith_status ith_pipeline_check_memory(ith_pipeline *pipeline, const ith_generate_options *options, int ranks,
                                     int ranks_here, int64_t *free_bytes)
{
    request asked = {0};
    ith_memory_balance balance = {.machine = ith_machine_memory_read("")};
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_status status = ith_need(pipeline->context, free_bytes, "free_bytes");
    if (!status)
        status = predict_request(pipeline, options, ranks, ranks_here, &balance.machine, &asked, &balance.bytes);
    if (!status) {
        *free_bytes = balance.machine.free.bytes;
        balance.host_bytes = balance.bytes;
        status =
            ith_check_memory(pipeline, pipeline->context, &asked.options, is_denoised(&asked), &asked.team, &balance);
    }
    ith_saved_run_close(pipeline->context, &asked.saved);
    return status;
}
