/* SPDX-License-Identifier: Apache-2.0 */
/* operand_kinds.h for the models: the types that a precision stands for, with f32 and with bf16 instructions. */
#ifndef ITH_TESTS_NUMBER_KINDS_H
#define ITH_TESTS_NUMBER_KINDS_H

#include "support/operand_kinds.h"
#include "wan/precision.h"

static inline ith_number_types number_kind(int kind)
{
    return (ith_number_types){operand_kinds[kind], kind == OPERANDS_F32 ? ITH_F32 : ITH_BF16};
}

#endif
