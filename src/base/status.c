/* SPDX-License-Identifier: Apache-2.0 */
/* Names of statuses, names and sizes of number types, and the version of the library. */
#include "version.h"

const char *ith_version(void)
{
    return ITH_VERSION_TEXT;
}

const char *ith_status_name(ith_status status)
{
    switch (status) {
    case ITH_OK: return "ITH_OK";
    case ITH_ERR_ARGUMENT: return "ITH_ERR_ARGUMENT";
    case ITH_ERR_UNSUPPORTED: return "ITH_ERR_UNSUPPORTED";
    case ITH_ERR_MEMORY: return "ITH_ERR_MEMORY";
    case ITH_ERR_IO: return "ITH_ERR_IO";
    case ITH_ERR_FORMAT: return "ITH_ERR_FORMAT";
    case ITH_ERR_TIMEOUT: return "ITH_ERR_TIMEOUT";
    case ITH_ERR_ABORTED: return "ITH_ERR_ABORTED";
    case ITH_ERR_INTERRUPTED: return "ITH_ERR_INTERRUPTED";
    case ITH_ERR_NUMERIC: return "ITH_ERR_NUMERIC";
    case ITH_ERR_INTERNAL: return "ITH_ERR_INTERNAL";
    }
    return "unknown status";
}

typedef struct dtype_row {
    const char *name;
    int64_t bytes;
} dtype_row;

static const dtype_row dtypes[] = {
    [ITH_DTYPE_NONE] = {"none", 0}, [ITH_F32] = {"f32", 4},   [ITH_BF16] = {"bf16", 2}, [ITH_F16] = {"f16", 2},
    [ITH_F64] = {"f64", 8},         [ITH_BOOL] = {"bool", 1}, [ITH_U8] = {"u8", 1},     [ITH_I8] = {"i8", 1},
    [ITH_I16] = {"i16", 2},         [ITH_I32] = {"i32", 4},   [ITH_I64] = {"i64", 8},
};

static const dtype_row *dtype_find(ith_dtype type)
{
    size_t index = (size_t)type;
    return &dtypes[index < sizeof dtypes / sizeof dtypes[0] ? index : 0];
}

int64_t ith_dtype_bytes(ith_dtype type)
{
    return dtype_find(type)->bytes;
}

const char *ith_dtype_name(ith_dtype type)
{
    return dtype_find(type)->name;
}
