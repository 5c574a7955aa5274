/* SPDX-License-Identifier: Apache-2.0 */
/* The fixture's context and the demo's checkpoint, opened with it. */
#ifndef ITH_TESTS_PIPELINE_FIXTURE_H
#define ITH_TESTS_PIPELINE_FIXTURE_H

#include "support/fixture.h"

#include <ithaca/wan.h>

#define MODEL "../models/shapes"

extern ith_pipeline *pipeline;

int pipeline_set_up(void **state);
int pipeline_tear_down(void **state);

#endif
