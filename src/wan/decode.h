/* SPDX-License-Identifier: Apache-2.0 */
/* The last stage of a run: latents become frames.
 *
 * Each process decodes a band of rows of every frame, with all of its threads, and rank 0 gathers the frames. No other
 * communication is needed, because a band is decoded with some rows more above and below (vae/vae.h). Any number of
 * processes gives the same bits. With from_latents the process of rank 0 decodes alone. */
#ifndef ITH_WAN_DECODE_H
#define ITH_WAN_DECODE_H

#include "rank.h"

/* Decodes shared.latents of rank 0, and passes the frames to options.on_frame on rank 0. A part of ith_rank_lead: the
 * leaders of all processes call it. A failure ends the group. */
ith_status ith_decode(ith_rank *rank, void *user);
/* Sets *bytes to the memory that decoding takes in the process of `team`. */
ith_status ith_decode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                            const ith_generate_options *options, const ith_latent_size *size, const ith_team *team,
                            int64_t *bytes);

#endif
