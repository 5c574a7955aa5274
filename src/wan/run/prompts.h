/* SPDX-License-Identifier: Apache-2.0 */
/* The encoded prompts of a run, and texts that a pipeline has encoded for later runs (ith_pipeline_encode). */
#ifndef ITH_WAN_PROMPTS_H
#define ITH_WAN_PROMPTS_H

#include "rank.h"

/* A list of texts. */
typedef struct ith_prompt_list {
    const char *const *texts;
    int64_t count;
} ith_prompt_list;

/* A hash of the texts in their order, by which ranks compare their lists. */
uint64_t ith_prompt_list_hash(const ith_prompt_list *list);

/* Counts the token ids of the prompt and of the negative prompt, 0 without guidance. Each id becomes one row of the
 * encoded text. */
ith_status ith_count_ids(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                         int64_t counts[2]);

/* An ith_rank_part for ith_rank_lead: encodes the texts of an ith_prompt_list, and keeps them in the pipeline. */
ith_status ith_prompts_keep(ith_rank *rank, void *list);
/* An ith_rank_part for ith_rank_lead: encodes the prompts of the run, or copies them from the pipeline. */
ith_status ith_prompts_make(ith_rank *rank, void *unused);
/* An ith_rank_part for ith_rank_lead: sends the prompts that rank 0 has encoded to the leaders of all pipelines. */
ith_status ith_prompts_share(ith_rank *rank, void *unused);

/* Whether the pipeline keeps all prompts of a run with these options, so that no text encoder is opened. */
bool ith_prompts_are_kept(const ith_pipeline *pipeline, const ith_context *context,
                          const ith_generate_options *options);
/* The bytes of the texts that the pipeline keeps. */
int64_t ith_prompts_kept_bytes(const ith_pipeline *pipeline);
void ith_prompts_free(ith_pipeline *pipeline);

#endif
