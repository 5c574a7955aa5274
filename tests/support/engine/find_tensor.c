/* SPDX-License-Identifier: Apache-2.0 */
#include "find_tensor.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

const ith_tensor *find_tensor(const ith_tensor_file *file, const char *name)
{
    const ith_tensor *tensor = ith_tensor_file_find(file, name);
    if (!tensor)
        fail_msg("there is no tensor '%s'", name);
    return tensor;
}

const float *find_floats(const ith_tensor_file *file, const char *name, int64_t *count)
{
    const ith_tensor *tensor = find_tensor(file, name);
    assert_int_equal(tensor->dtype, ITH_F32);
    assert_int_equal((uintptr_t)tensor->data % 4, 0);
    if (count)
        *count = tensor->bytes / 4;
    return tensor->data;
}
