/* SPDX-License-Identifier: Apache-2.0 */
/* LoRA files: changes to the weights of a transformer (arXiv:2106.09685).
 *
 *   w' = w + strength alpha / rank up down    b' = b + strength diff_b    table' = table + strength diff_m
 *   w' = w + strength diff
 *
 * The matrices stay in their mapped files. Linear layers take them as additions (linear.h), so that w is not copied. A
 * tensor that changes nothing in the model is an error, like a weight that is left over (store.h). */
#ifndef ITH_WAN_LORA_H
#define ITH_WAN_LORA_H

#include "../../linear/linear.h"

#define ITH_LORA_FILES_MAX 16
/* The largest number of additions to one matrix: a product and a difference in each file. */
#define ITH_LORA_ADDITIONS_MAX (2 * ITH_LORA_FILES_MAX)

/* A LoRA file that is to be opened. */
typedef struct ith_lora_source {
    const char *path;
    double strength;
    bool leaves_out_image; /* the model has no image encoder: the tensors for one are left out */
} ith_lora_source;

/* The LoRA files that change one transformer. One thread at a time uses it, except for ith_lora_matrix without `marks`.
 */
typedef struct ith_lora ith_lora;
/* Opens at most ITH_LORA_FILES_MAX safetensors files. Reads headers, metadata and factors. ITH_ERR_UNSUPPORTED for
 * another form of LoRA, which is named, for a file with tensors of unknown names, and for a file whose tensors are all
 * left out (leaves_out_image). */
ith_status ith_lora_open(ith_context *context, const ith_lora_source *sources, int64_t count, ith_lora **out);
/* Makes a LoRA without files, of this rank in every matrix of the transformer's blocks, for benchmarks. widest: the
 * largest width of these matrices. Its numbers are there after ith_lora_fill_random. */
ith_status ith_lora_make_random(ith_context *context, int64_t rank, int64_t widest, ith_lora **out);
ith_status ith_lora_fill_random(ith_lora *lora);
/* The bytes that a LoRA without files takes when its numbers are there; 0 for NULL. */
int64_t ith_lora_random_bytes(const ith_lora *lora);
void ith_lora_close(ith_lora **lora);
/* The number of files; 0 for NULL. */
int ith_lora_count(const ith_lora *lora);
/* The path and the strength of file number `index`. */
const char *ith_lora_path(const ith_lora *lora, int index);
double ith_lora_strength(const ith_lora *lora, int index);
/* The number of tensors of file number `index` that were left out (leaves_out_image). */
int64_t ith_lora_left_out(const ith_lora *lora, int index);
/* Whether one of the files has this path. */
bool ith_lora_has_path(const ith_lora *lora, const char *path);
/* The bytes of all tensors in the files. */
int64_t ith_lora_bytes(const ith_lora *lora);
/* The numbers of all low-rank matrices, up and down, of the transformer's blocks; 0 for NULL. */
int64_t ith_lora_block_numbers(const ith_lora *lora);
/* Checks that the files were not replaced, changed or removed since they were opened. NULL is accepted. */
ith_status ith_lora_check_unchanged(ith_context *context, const ith_lora *lora);
/* Computes a hash of the factor, name, type, size in bytes and a few numbers of each tensor. Two processes with the
 * same hash have almost certainly the same files. NULL gives 0. */
ith_status ith_lora_hash(ith_context *context, const ith_lora *lora, uint64_t *hash);

/* In the functions below, a lora of NULL has no changes. With `marks`, the changes that a function takes count as
 * taken. */

/* Forgets which changes were taken. */
void ith_lora_restart(ith_lora *lora);
/* A matrix [rows, in] of a linear layer, the weight of a module. */
typedef struct ith_lora_target {
    const char *module;
    int index; /* its number in the layer */
    int64_t rows, in;
} ith_lora_target;
/* Appends the additions to a matrix to out, which has room for ITH_LORA_ADDITIONS_MAX more, and adds their number to
 * *count. ITH_ERR_FORMAT if a shape does not fit the matrix. */
ith_status ith_lora_matrix(ith_context *context, ith_lora *lora, const ith_lora_target *matrix, bool marks,
                           ith_linear_addition *out, int64_t *count);
/* Adds the changes of a vector or a table to values [count]; NULL: only checks them. tensor: its canonical name. */
ith_status ith_lora_floats(ith_context *context, ith_lora *lora, const char *tensor, int64_t count, bool marks,
                           float *values);
/* Adds row `row` of some additions to the row `to` [in]. */
ith_status ith_lora_merge_row(ith_context *context, const ith_linear_addition *additions, int64_t count, int64_t row,
                              int64_t in, float *to);
/* Checks that every change was taken. Otherwise returns ITH_ERR_UNSUPPORTED, with a sentence that names the first
 * tensor that was not, and counts them. */
ith_status ith_lora_check_all_taken(ith_context *context, const ith_lora *lora);

#endif
