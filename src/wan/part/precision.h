/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the number types of a run, from the user's precision and the machine. No other file makes this choice. */
#ifndef ITH_WAN_PRECISION_H
#define ITH_WAN_PRECISION_H

#include <ithaca/wan.h>

#include "../../linear/operand.h"

/* The number types of a run. */
typedef struct ith_number_types {
    ith_operand_types products; /* operands of linear layers and convolutions */
    ith_dtype attention;        /* of q, k, v and o in the DiT; the text encoder and the VAE attend in f32 */
} ith_number_types;

/* Checks that `precision` is one of the values of its enum. */
ith_status ith_precision_check(ith_context *context, ith_precision precision);
/* Replaces ITH_PRECISION_AUTO by F32 or BF16, by the rule in wan.h. Returns other values unchanged. */
ith_precision ith_precision_resolve(const ith_context *context, ith_precision precision);
/* Returns the number types for a precision of F32 or BF16 on the machine of the context. */
ith_number_types ith_number_types_choose(const ith_context *context, ith_precision precision);

#endif
