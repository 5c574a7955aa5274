/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the encoder or the decoder, and its packed weights. */
#ifndef ITH_WAN_VAE_MEMORY_H
#define ITH_WAN_VAE_MEMORY_H

#include "../part/work.h"
#include "vae_layers.h"

/* Prepares *work for the layers that its owner, an encoder or a decoder, adds next. convs: room for all convolutions,
 * zero. lay_out_frames lays out the owner's frames and work->temp. owner_bytes: of the owner's own allocation. */
void ith_vae_work_begin(ith_vae_work *work, ith_context *context, const ith_vae *vae, ith_vae_conv *convs,
                        void (*lay_out_frames)(void *owner, ith_arena *arena), void *owner, int64_t owner_bytes);
/* Allocates the memory of all layers and packs their weights. After this, the layers allocate nothing. */
ith_status ith_vae_work_open(ith_vae_work *work);
/* Sets *bytes to the memory that the owner, ith_vae_work_begin and ith_vae_work_open take from the context. */
ith_status ith_vae_work_bytes(ith_vae_work *work, int64_t *bytes);
/* Frees the memory that ith_vae_work_begin and ith_vae_work_open have allocated. */
void ith_vae_work_close(ith_vae_work *work);

/* The name of a level in the trace. */
const char *ith_vae_level_name(int64_t level);
/* Checks the size of latents that are to be encoded or decoded (`done`). */
ith_status ith_vae_check_size(ith_context *context, const ith_vae_extent *extent, const char *done);

/* Takes memory for rows from the arena. */
void ith_vae_rows_lay_out(ith_vae_rows *rows, ith_arena *arena);

/* The number of times that a convolution is computed for `frames` latent frames. */
double ith_vae_conv_times(const ith_vae_conv *conv, int64_t frames);
/* Lists the work of `frames` latent frames. The memory need not be allocated. */
void ith_vae_work_list(const ith_vae_work *work, int64_t frames, const ith_work_list *list);
/* Prepares the display of progress for a latent frame, which is measured in operations of convolutions. */
void ith_vae_work_begin_latent(ith_vae_work *work, bool first, const ith_span *shown);

#endif
