/* SPDX-License-Identifier: Apache-2.0 */
/* A run of the engine on ranks that are threads of this process and share one pipeline. */
#ifndef ITH_TESTS_ENGINE_RANKS_H
#define ITH_TESTS_ENGINE_RANKS_H

#include <ithaca/wan.h>

/* context: that of the pipeline, which has the sentence of a failure. One rank: without a communicator. report: of rank
 * 0. */
ith_status engine_generate(ith_context *context, ith_pipeline *pipeline, int ranks, const ith_generate_options *options,
                           ith_generate_report *report);

#endif
