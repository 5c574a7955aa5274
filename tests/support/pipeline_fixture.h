/* SPDX-License-Identifier: Apache-2.0 */
/* A context and the demo's checkpoint, opened, for cmocka's set-up and tear-down. */
#ifndef ITH_TESTS_PIPELINE_FIXTURE_H
#define ITH_TESTS_PIPELINE_FIXTURE_H

#include "support/context_fixture.h"

#include <ithaca/wan.h>

#define MODEL "../models/shapes"

static ith_pipeline *pipeline;

static inline int pipeline_set_up(void **state)
{
    if (context_set_up(state))
        return 1;
    ith_status status = ith_pipeline_open(context, MODEL, &pipeline);
    if (status)
        print_error("%s\n", ith_context_error(context));
    return status;
}

static inline int pipeline_tear_down(void **state)
{
    ith_pipeline_close(&pipeline);
    return context_tear_down(state);
}

#endif
