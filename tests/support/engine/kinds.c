/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/kinds.h"

#include "base/dtype.h"
#include "kernels/product.h"

const ith_operand_types operand_kinds[OPERAND_KINDS] = {
    {ITH_F32, ITH_F32, ITH_F32}, {ITH_BF16, ITH_BF16, ITH_F32}, {ITH_BF16, ITH_BF16, ITH_BF16}};

int operand_kinds_here(const ith_context *of)
{
    return ith_product_kernel_choose(ITH_BF16, ith_context_cpu(of)) ? OPERAND_KINDS : OPERANDS_BF16;
}

double operand_value(float x, int kind)
{
    return (double)(kind == OPERANDS_F32 ? x : ith_f32_from_bf16(ith_bf16_from_f32(x)));
}

ith_number_types number_kind(int kind)
{
    return (ith_number_types){operand_kinds[kind], kind == OPERANDS_F32 ? ITH_F32 : ITH_BF16};
}
