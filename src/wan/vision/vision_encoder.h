/* SPDX-License-Identifier: Apache-2.0 */
/* CLIP's image encoder: turns a picture into the rows that the transformer of Wan 2.1's image-to-video models attends
 * to. */
#ifndef ITH_WAN_VISION_ENCODER_H
#define ITH_WAN_VISION_ENCODER_H

#include "../../base/context.h"
#include "../../base/observer.h"
#include "../../files/store.h"
#include "../../linear/operand.h"
#include "../part/work.h"
#include "vision_config.h"

#include <ithaca/wan.h>

typedef struct ith_vision_encoder ith_vision_encoder;

/* Makes the layers of the encoder from its open weight files. The encoder owns the store; a call that fails closes it.
 * types: the number types of its matrix products; its attention is f32. keeps_packed: linear layers convert their
 * weights now and keep them in memory; the results have the same bits. */
ith_status ith_vision_encoder_open(ith_context *context, const ith_vision_config *config, ith_store *store,
                                   ith_operand_types types, bool keeps_packed, ith_vision_encoder **out);
/* Checks that the weight files hold every tensor of the encoder, by name, type and shape, and no other tensor. The
 * tensors of the last layer, of the norm after it and of the projection may be there or not; they are not looked at.
 * Reads headers only. The store stays the caller's. */
ith_status ith_vision_encoder_check(ith_context *context, const ith_vision_config *config, ith_store *store);
void ith_vision_encoder_free(ith_context *context, ith_vision_encoder **encoder);
/* Scales and cuts the picture as the configuration says, and encodes it into rows [ith_vision_tokens, dim], f32: the
 * output of the last layer but one (hidden_states[-2] in transformers). Nothing is allocated between the first layer
 * and the last. span: the part of the run's progress that this call accounts for. */
ith_status ith_vision_encode(ith_context *context, const ith_vision_encoder *encoder, const ith_image *image,
                             float *rows, const ith_span *span);
/* Sets *bytes to the peak memory of an encoder that encodes a picture of this size, besides its ith_store. */
ith_status ith_vision_encoder_bytes(ith_context *context, const ith_vision_config *config, ith_operand_types types,
                                    bool keeps_packed, const ith_image *image, int64_t *bytes);
/* Lists the work of ith_vision_encode. */
ith_status ith_vision_encoder_list(ith_context *context, const ith_vision_config *config, ith_operand_types types,
                                   const ith_work_list *list);

#endif
