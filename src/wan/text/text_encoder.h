/* SPDX-License-Identifier: Apache-2.0 */
/* The umT5 text encoder: turns the ids of a prompt into the rows that the DiT attends to. */
#ifndef ITH_WAN_TEXT_ENCODER_H
#define ITH_WAN_TEXT_ENCODER_H

#include "../../base/context.h"
#include "../../base/observer.h"
#include "../../files/store.h"
#include "../../linear/operand.h"
#include "../part/work.h"
#include "text_config.h"

typedef struct ith_text_encoder ith_text_encoder;

/* Makes the layers of the encoder from its open weight files. The encoder owns the store; a call that fails closes it.
 * types: the number types of its matrix products; its attention is f32. keeps_packed: linear layers convert their
 * weights now and keep them in memory; the results have the same bits. */
ith_status ith_text_encoder_open(ith_context *context, const ith_text_config *config, ith_store *store,
                                 ith_operand_types types, bool keeps_packed, ith_text_encoder **out);
/* Checks that the weight files hold every tensor of the encoder, by name, type and shape, and no other tensor. Reads
 * headers only. The store stays the caller's. */
ith_status ith_text_encoder_check(ith_context *context, const ith_text_config *config, ith_store *store);
void ith_text_encoder_free(ith_context *context, ith_text_encoder **encoder);
/* Encodes ids [count] into rows [count, dim], f32. Nothing is allocated between the first layer and the last. span: the
 * part of the run's progress that this call accounts for. */
ith_status ith_text_encode(ith_context *context, const ith_text_encoder *encoder, const int32_t *ids, int64_t count,
                           float *rows, const ith_span *span);
/* Sets *bytes to the peak memory of an encoder that encodes `count` ids, besides its ith_store. */
ith_status ith_text_encoder_bytes(ith_context *context, const ith_text_config *config, ith_operand_types types,
                                  bool keeps_packed, int64_t count, int64_t *bytes);
/* Lists the work of ith_text_encode for `count` ids. */
ith_status ith_text_encoder_list(ith_context *context, const ith_text_config *config, ith_operand_types types,
                                 int64_t count, const ith_work_list *list);

#endif
