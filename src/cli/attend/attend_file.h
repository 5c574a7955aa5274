/* SPDX-License-Identifier: Apache-2.0 */
/* The files of ithaca attend.
 *
 * The input file holds q [B, Sq, H, D], k and v [B, Skv, Hkv, D], and may hold kv_lengths [B], key_bias [B, Skv] and
 * mask [B or 1, H or 1, Sq or 1, Skv]. All of them are copied; q, k and v into the type of the computation. */
#ifndef ITH_CLI_ATTEND_FILE_H
#define ITH_CLI_ATTEND_FILE_H

#include "attend_whole.h"

#include <ithaca/files.h>

/* The input file, and the tensors that are read from it or computed. */
typedef struct ith_attend_file {
    const char *path; /* of the input file */
    ith_tensor_file *file;
    ith_attend_whole whole; /* all tensors, in the type of the computation */
    ith_dtype stored;       /* type of q in the input file and of o in the output file */
} ith_attend_file;

/* Opens the input file, reads its tensors, and allocates o and lse. compute: the type of the computation;
 * ITH_DTYPE_NONE: q's type. Prints errors and returns an exit status; ith_attend_file_close is needed in any case. */
int ith_attend_file_read(ith_context *context, const char *path, ith_dtype compute, ith_attend_file *t);
/* Warns of tensors that are not used: the name of a mask may be misspelled. */
void ith_attend_file_warn(const ith_attend_file *t);
/* Writes the output file: o in the type that q has in the input, lse, and the text of the plan as metadata 'plan'.
 * Prints errors and returns an exit status. */
int ith_attend_file_write(ith_context *context, const char *path, ith_attend_file *t, const char *plan);
void ith_attend_file_close(ith_attend_file *t);

#endif
