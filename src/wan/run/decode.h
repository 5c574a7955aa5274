/* SPDX-License-Identifier: Apache-2.0 */
/* The last stage of a run: latents become frames.
 *
 * Each process decodes a band of rows of every frame, with all of its threads, and rank 0 gathers the frames. The
 * processes exchange nothing else: each process also computes the rows above and below its band on which the band
 * depends (vae/vae.h). Any number of processes gives the same bits. With from_latents the process of rank 0 decodes
 * alone. It also decodes alone if its context has a device that decodes (vae/vae_device.h). If rank 0's process has no
 * such device and another process has one, the other process decodes whole frames on its device, and passes on its
 * band. */
#ifndef ITH_WAN_DECODE_H
#define ITH_WAN_DECODE_H

#include "rank.h"

/* Decodes the latents of rank 0's process (shared.latents), and passes the frames to options.on_frame on rank 0. The
 * leaders of all processes call it through ith_rank_lead. `user` is not used. If several processes decode, a
 * failure ends the group. */
ith_status ith_decode(ith_rank *rank, void *user);
/* The rows of the latents that process `process` decodes. If there are more processes than rows, the last ones have
 * none. */
ith_vae_span ith_decode_band(const ith_latent_size *size, int processes, int process);
/* Sets *bytes to the memory that decoding takes in the process of `team`. */
ith_status ith_decode_bytes(ith_context *context, const ith_vae_config *config, ith_operand_types types,
                            const ith_generate_options *options, const ith_latent_size *size, const ith_team *team,
                            int64_t *bytes);

#endif
