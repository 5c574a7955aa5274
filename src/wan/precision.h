/* SPDX-License-Identifier: Apache-2.0 */
/* The types of numbers that a run computes with: decided here alone, from the user's precision and the machine. */
#ifndef ITH_WAN_PRECISION_H
#define ITH_WAN_PRECISION_H

#include <ithaca/wan.h>

#include "../linear/operand.h"

typedef struct ith_number_types {
    ith_operand_types products; /* of linear layers and convolutions */
    ith_dtype attention;        /* q, k, v and o of the transformer; other attention is of f32 tensors */
} ith_number_types;

/* F32 or BF16 for AUTO, by the rule that wan.h states; others as they are. */
ith_precision ith_precision_resolve(const ith_context *context, ith_precision precision);
/* precision: F32 or BF16, for the machine of the context. */
ith_number_types ith_number_types_choose(const ith_context *context, ith_precision precision);

#endif
