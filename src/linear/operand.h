/* SPDX-License-Identifier: Apache-2.0 */
/* The operands of matrix products and convolutions: rows of activations, and weights. Sums are always f32. */
#ifndef ITH_LINEAR_OPERAND_H
#define ITH_LINEAR_OPERAND_H

#include "../base/context.h"

/* Three choices, each F32 or BF16. A weight is rounded to `stored` and an activation to `rounded`. Both are then
 * converted to `multiplied`, without loss. The product of two bf16 numbers is exact in f32, so f32 and bf16
 * instructions give the same products and differ only in the rounding of their sums. */
typedef struct ith_operand_types {
    ith_dtype stored;     /* type of the weights of linear layers in memory */
    ith_dtype rounded;    /* type to which activations are rounded */
    ith_dtype multiplied; /* type of both operands when they are multiplied; BF16 only if the other two are BF16 */
} ith_operand_types;

/* Operands that are stored, rounded and multiplied as f32. */
static inline ith_operand_types ith_operands_f32(void)
{
    return (ith_operand_types){ITH_F32, ITH_F32, ITH_F32};
}

/* Whether two choices of types are equal. */
static inline bool ith_operand_types_equal(ith_operand_types a, ith_operand_types b)
{
    return a.stored == b.stored && a.rounded == b.rounded && a.multiplied == b.multiplied;
}

/* Returns ITH_ERR_ARGUMENT if `types` breaks the rules of ith_operand_types, or if weight_type, the type of weights in
 * a file, is none of F32, BF16, F16 and the quantised types (kernels/unpack.h). `what` names the operation in the
 * message: "a linear layer", ... */
ith_status ith_operand_types_check(ith_context *context, const ith_operand_types *types, ith_dtype weight_type,
                                   const char *what);

#endif
