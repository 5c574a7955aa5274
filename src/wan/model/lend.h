/* SPDX-License-Identifier: Apache-2.0 */
/* Models that lie on rank 0's disk alone. The process of rank 0 sends each other process, before the run, the parts of
 * the files that this process reads:
 *
 *   configurations, tokenizer   whole
 *   text encoder                the headers of the files: rank 0 encodes the prompts, and sends the rows
 *   image encoder               the headers of the files: rank 0 encodes the images, and sends the rows
 *   transformer                 all but the matrices of the transformer blocks. The run sends these layer by layer
 *                               (dit/dit_shards.h); rank 0 makes the prompts' keys and values, and sends them
 *   autoencoder                 the decoder
 *
 * The public function ith_model_lend (ithaca/wan.h) sends them. */
#ifndef ITH_WAN_LEND_H
#define ITH_WAN_LEND_H

#include <ithaca/wan.h>

/* Whether the model in `folder` was lent to this process. */
bool ith_model_is_lent(ith_context *context, const char *folder);

#endif
