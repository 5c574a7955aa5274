/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of `ithaca attend`: read from one file, written to another. */
#ifndef ITH_CLI_ATTEND_TENSORS_H
#define ITH_CLI_ATTEND_TENSORS_H

#include "attend_whole.h"

#include <ithaca/files.h>

typedef struct ith_attend_tensors {
    ith_tensor_file *file;
    ith_attend_whole whole; /* of the type that is computed in; inputs lie in the file's mapping where they can */
    ith_dtype stored;       /* of q in the file, and of o when it is written */
} ith_attend_tensors;

/* Reads q, k, v, and kv_lengths, key_bias, mask and the scale if they are there. compute: the type to compute in, NONE
 * for the stored one. Prints what is wrong and returns an exit status; the caller closes in any case. */
int ith_attend_read(ith_context *context, const char *path, ith_dtype compute, ith_attend_tensors *t);
/* Writes o and lse. */
int ith_attend_write(ith_context *context, const char *path, ith_attend_tensors *t, const char *plan);
void ith_attend_close(ith_attend_tensors *t);

#endif
