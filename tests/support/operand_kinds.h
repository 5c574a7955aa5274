/* SPDX-License-Identifier: Apache-2.0 */
/* The ways in which products are computed, each of which a test of layers goes through. */
#ifndef ITH_TESTS_OPERAND_KINDS_H
#define ITH_TESTS_OPERAND_KINDS_H

#include "base/dtype.h"
#include "linear/onednn.h"
#include "linear/operand.h"

enum { OPERANDS_F32, OPERANDS_BF16_IN_F32, OPERANDS_BF16, OPERAND_KINDS };

static const ith_operand_types operand_kinds[OPERAND_KINDS] = {
    {ITH_F32, ITH_F32, ITH_F32}, {ITH_BF16, ITH_BF16, ITH_F32}, {ITH_BF16, ITH_BF16, ITH_BF16}};

/* Those that this machine has: all, or all but the last. */
static inline int operand_kinds_here(const ith_context *of)
{
    return ith_onednn_multiplies_bf16(of) ? OPERAND_KINDS : OPERANDS_BF16;
}

/* x as an operand, for an oracle. */
static inline double operand_value(float x, int kind)
{
    return (double)(kind == OPERANDS_F32 ? x : ith_f32_from_bf16(ith_bf16_from_f32(x)));
}

#endif
