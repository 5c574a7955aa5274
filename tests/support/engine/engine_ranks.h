/* SPDX-License-Identifier: Apache-2.0 */
/* A run of the engine on ranks that are threads of this process and share one pipeline. */
#ifndef ITH_TESTS_ENGINE_RANKS_H
#define ITH_TESTS_ENGINE_RANKS_H

#include <ithaca/wan.h>

/* Generates a video on `ranks` ranks. context: the context of the pipeline; it gets the sentence of a failure. A single
 * rank runs without a communicator. report: gets the report of rank 0. */
ith_status engine_generate(ith_context *context, ith_pipeline *pipeline, int ranks, const ith_generate_options *options,
                           ith_generate_report *report);

#endif
