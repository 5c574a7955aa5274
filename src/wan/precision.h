/* SPDX-License-Identifier: Apache-2.0 */
/* The types of numbers of a run, decided here only, by the user's precision and the machine. */
#ifndef ITH_WAN_PRECISION_H
#define ITH_WAN_PRECISION_H

#include <ithaca/wan.h>

#include "../linear/operand.h"

typedef struct ith_number_types {
    ith_operand_types products; /* of linear layers and convolutions */
    ith_dtype attention;        /* q, k, v and o of the transformer; other attention is of f32 tensors */
} ith_number_types;

/* Replaces AUTO by F32 or BF16 by the rule in wan.h; returns other values unchanged. */
ith_precision ith_precision_resolve(const ith_context *context, ith_precision precision);
/* The types for a precision of F32 or BF16 on the machine of the context. */
ith_number_types ith_number_types_choose(const ith_context *context, ith_precision precision);

#endif
