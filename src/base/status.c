/* SPDX-License-Identifier: Apache-2.0 */
/* Names of statuses, names and sizes of number types, and the version of the library. */
#include "size.h"
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

/* A type: its name, and the elements and bytes of a quantisation block, or of one element. */
typedef struct dtype_row {
    const char *name;
    int64_t run, bytes;
} dtype_row;

static const dtype_row dtypes[] = {
    [ITH_DTYPE_NONE] = {"none", 1, 0}, [ITH_F32] = {"f32", 1, 4},       [ITH_BF16] = {"bf16", 1, 2},
    [ITH_F16] = {"f16", 1, 2},         [ITH_F64] = {"f64", 1, 8},       [ITH_BOOL] = {"bool", 1, 1},
    [ITH_U8] = {"u8", 1, 1},           [ITH_I8] = {"i8", 1, 1},         [ITH_I16] = {"i16", 1, 2},
    [ITH_I32] = {"i32", 1, 4},         [ITH_I64] = {"i64", 1, 8},       [ITH_F8_E4M3] = {"f8_e4m3", 1, 1},
    [ITH_F8_E5M2] = {"f8_e5m2", 1, 1}, [ITH_Q4_0] = {"q4_0", 32, 18},   [ITH_Q4_1] = {"q4_1", 32, 20},
    [ITH_Q5_0] = {"q5_0", 32, 22},     [ITH_Q5_1] = {"q5_1", 32, 24},   [ITH_Q8_0] = {"q8_0", 32, 34},
    [ITH_Q2_K] = {"q2_k", 256, 84},    [ITH_Q3_K] = {"q3_k", 256, 110}, [ITH_Q4_K] = {"q4_k", 256, 144},
    [ITH_Q5_K] = {"q5_k", 256, 176},   [ITH_Q6_K] = {"q6_k", 256, 210}, [ITH_IQ4_NL] = {"iq4_nl", 32, 18},
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

int64_t ith_dtype_run(ith_dtype type)
{
    return dtype_find(type)->run;
}

int64_t ith_dtype_row_bytes(ith_dtype type, int64_t count)
{
    const dtype_row *row = dtype_find(type);
    int64_t bytes;
    return count >= 0 && count % row->run == 0 && ith_size_mul(count / row->run, row->bytes, &bytes) ? bytes : -1;
}

const char *ith_dtype_name(ith_dtype type)
{
    return dtype_find(type)->name;
}
