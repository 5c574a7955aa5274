/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the operands of products. */
#include "operand.h"

#include "../base/dtype.h"
#include "../kernels/unpack.h"

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
    if (!ith_dtype_is_operand(weight_type) && !ith_unpack_has(weight_type))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "weights of %s are f32, bf16, f16, i8, fp8, or of a type of GGUF files, not %s", what,
                        ith_dtype_name(weight_type));
    return ITH_OK;
}
