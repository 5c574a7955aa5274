/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/pipeline_fixture.h"

ith_pipeline *pipeline;

int pipeline_set_up(void **state)
{
    if (context_set_up(state))
        return 1;
    ith_status status = ith_pipeline_open(context, MODEL, &pipeline);
    if (status)
        print_error("%s\n", ith_context_error(context));
    return status;
}

int pipeline_tear_down(void **state)
{
    ith_pipeline_close(&pipeline);
    return context_tear_down(state);
}
