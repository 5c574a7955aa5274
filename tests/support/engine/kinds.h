/* SPDX-License-Identifier: Apache-2.0 */
/* The types in which operands of products can be stored and multiplied. Tests of layers and models go through all of
 * them. */
#ifndef ITH_TESTS_KINDS_H
#define ITH_TESTS_KINDS_H

#include "base/dtype.h"
#include "linear/operand.h"
#include "wan/part/precision.h"

enum { OPERANDS_F32, OPERANDS_BF16_IN_F32, OPERANDS_BF16, OPERAND_KINDS };
extern const ith_operand_types operand_kinds[OPERAND_KINDS];

/* The number of kinds that this machine has: all, or all but the last one, for which it may lack the instructions. */
int operand_kinds_here(const ith_context *of);
/* x rounded as an operand of that kind, for an oracle. */
double operand_value(float x, int kind);

/* The number types of a model whose products have operands of that kind. */
ith_number_types number_kind(int kind);

#endif
