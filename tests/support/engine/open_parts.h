/* SPDX-License-Identifier: Apache-2.0 */
/* Opens one component of a diffusers checkpoint from its folder: its configuration, its weight files, and its
 * layers. */
#ifndef ITH_TESTS_OPEN_PARTS_H
#define ITH_TESTS_OPEN_PARTS_H

#include "wan/dit/dit.h"
#include "wan/text/text_encoder.h"
#include "wan/vae/vae.h"

ith_status open_dit(ith_context *context, const char *folder, ith_number_types types, ith_linear_keep keep,
                    ith_dit **out);
/* As open_dit, with all choices. */
ith_status open_dit_with(ith_context *context, const char *folder, const ith_dit_choices *choices, ith_dit **out);
ith_status open_text_encoder(ith_context *context, const char *folder, ith_operand_types types, bool keeps_packed,
                             ith_text_encoder **out);
ith_status open_vae(ith_context *context, const char *folder, ith_vae_half half, ith_operand_types types,
                    ith_vae **out);

/* Checks the weight files of a text encoder, and closes them. */
ith_status check_text_encoder(ith_context *context, const char *folder);

/* The bytes of the context that the open weight files of a transformer take. *weights: the bytes of its tensors. */
int64_t dit_file_bytes(ith_context *context, const char *folder, int64_t *weights);

#endif
