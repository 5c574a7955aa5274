/* SPDX-License-Identifier: Apache-2.0 */
/* Converts operands of products to the types in which they are multiplied: rounds to nearest, ties to even, then widens
 * if f32 is multiplied. */
#include "operand.h"

#include "../base/dtype.h"
#include "../base/size.h"

#include <string.h>

#define PIECE 256 /* the number of weights that are converted at a time */

ith_status ith_operand_types_check(ith_context *context, const ith_operand_types *types, ith_dtype weight_type,
                                   const char *what)
{
    const ith_dtype all[] = {types->stored, types->rounded, types->multiplied};
    int narrow = 0;
    for (int i = 0; i < 3; i++) {
        if (all[i] != ITH_F32 && all[i] != ITH_BF16)
            return ith_fail(context, ITH_ERR_ARGUMENT, "operands of %s are f32 or bf16, not %s", what,
                            ith_dtype_name(all[i]));
        narrow += all[i] == ITH_BF16;
    }
    if (types->multiplied == ITH_BF16 && narrow < 3)
        return ith_fail(context, ITH_ERR_ARGUMENT, "operands of %s that are multiplied in bf16 are rounded to it first",
                        what);
    if (weight_type != ITH_F32 && weight_type != ITH_BF16 && weight_type != ITH_F16)
        return ith_fail(context, ITH_ERR_ARGUMENT, "weights of %s are f32, bf16 or f16, not %s", what,
                        ith_dtype_name(weight_type));
    return ITH_OK;
}

void ith_operand_round(const ith_operand_types *types, const ith_rowops *rowops, void *to, const float *x,
                       int64_t count)
{
    if (types->multiplied == ITH_BF16)
        rowops->bf16_from_f32(to, x, count);
    else if (types->rounded == ITH_BF16)
        rowops->round_to_bf16(to, x, count);
    else if (to != x)
        memcpy(to, x, (size_t)count * sizeof *x);
}

void ith_operand_weights(const ith_operand_types *types, void *to, const void *weights, ith_dtype weight_type,
                         int64_t count)
{
    int64_t from_bytes = ith_dtype_bytes(weight_type), to_bytes = ith_dtype_bytes(types->multiplied);
    bool rounds = types->stored == ITH_BF16 && weight_type != ITH_BF16;
    float some[PIECE];
    for (int64_t begin = 0; begin < count; begin += PIECE) {
        int64_t length = ith_min64(PIECE, count - begin);
        const char *from = (const char *)weights + begin * from_bytes;
        char *piece = (char *)to + begin * to_bytes;
        if (weight_type == types->multiplied && !rounds) {
            memcpy(piece, from, (size_t)(length * to_bytes));
            continue;
        }
        ith_to_f32(some, from, weight_type, length);
        if (rounds && types->multiplied == ITH_F32)
            for (int64_t i = 0; i < length; i++)
                some[i] = ith_round_to_bf16(some[i]);
        ith_from_f32(piece, types->multiplied, some, length);
    }
}
