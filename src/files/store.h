/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of one model component ("transformer", "vae", ...), from one file or from several shards with an index. A
 * caller takes every tensor by name and shape. A tensor that is left over is an error, so that a different kind of
 * model is never mistaken for this one. Only the headers of the files are read when a store is opened and when tensors
 * are taken. A store holds a reference to its context. */
#ifndef ITH_FILES_STORE_H
#define ITH_FILES_STORE_H

#include <ithaca/files.h>

#include "../base/context.h"

typedef struct ith_store ith_store;

/* Which weights are used if both a single file and an index of shards exist: diffusers uses the index, transformers the
 * file. */
typedef enum ith_store_choice { ITH_STORE_INDEX_FIRST, ITH_STORE_FILE_FIRST } ith_store_choice;

/* Opens folder/stem.safetensors, or the shards that folder/stem.safetensors.index.json names. All shards lie in the
 * folder (no path separators), and hold exactly the tensors that the index assigns to them. If both a file and an index
 * exist, the log says which one is taken. */
ith_status ith_store_open(ith_context *context, const char *folder, const char *stem, ith_store_choice choice,
                          ith_store **out);
/* The largest number of bytes of a canonical name, with its terminating zero. */
#define ITH_STORE_NAME_BYTES 256

/* Returns the canonical name, which diffusers uses, of the tensor `name` in a file of another origin. The result is
 * `name` itself, a constant, or a string in `space`. NULL: the tensor is ignored. The part of a name after the module,
 * such as ".weight" or ".scale_weight", stays. */
typedef const char *(*ith_store_name_fn)(const void *user, const char *name, char space[ITH_STORE_NAME_BYTES]);

/* How the names in files of another origin become canonical names. */
typedef struct ith_store_names {
    ith_store_name_fn canonical;
    const void *user; /* the first argument of canonical */
} ith_store_names;
/* As ith_store_open, for files whose names become canonical names. */
ith_status ith_store_open_as(ith_context *context, const char *folder, const char *stem, ith_store_choice choice,
                             const ith_store_names *names, ith_store **out);

/* Opens `count` files, which together hold the tensors of one component; or one index of shards, whose name has
 * ".index." in it and ends with ".json". names NULL: the names in the files are the canonical ones. All other functions
 * of a store take canonical names. ITH_ERR_FORMAT if two tensors have the same canonical name. */
ith_status ith_store_open_files(ith_context *context, const char *const *paths, int64_t count,
                                const ith_store_names *names, ith_store **out);
/* Opens a store without files. It has every tensor that a caller takes, with random numbers of type `type`
 * (random_tensors.h). */
ith_status ith_store_open_random(ith_context *context, ith_dtype type, ith_store **out);
/* Returns the bytes that a store of random tensors takes from the context once it has made every tensor that was taken
 * with out NULL. 0 for a store with files. */
int64_t ith_store_random_bytes(const ith_store *store);
void ith_store_close(ith_store **store);
/* After this call the store reports the bytes of released, retained and skipped tensors to the context's observer, as
 * progress of `stage`. */
void ith_store_show(ith_store *store, int stage);

/* The path of the index or of the file, for messages; of several files the first path and the number of the others.
 * NULL for a store without files. */
const char *ith_store_path(const ith_store *store);
/* The path of file number `index` of the store; NULL after the last one. It lives as long as the store. */
const char *ith_store_file(const ith_store *store, int64_t index);
/* The tensor at a position in the list of all tensors, ordered by name; NULL after the last one. This does not take the
 * tensor. */
const ith_tensor *ith_store_at(const ith_store *store, int64_t index);
/* Size `dim` in the shape of a tensor; 0 if there is no such tensor, or it has fewer dimensions. This does not take the
 * tensor. */
int64_t ith_store_size(const ith_store *store, const char *name, int dim);
/* The number of rows of a table [rows, width] or [1, rows, width], which most GGUF files have as [rows, width]. 0 if
 * there is no such tensor, or it has another shape. This does not take the tensor. */
int64_t ith_store_rows(const ith_store *store, const char *name);
/* The number of tensors before + 0 + after, before + 1 + after, ... up to the first that is missing; at most `most`.
 * This does not take the tensors. */
int64_t ith_store_count(const ith_store *store, const char *before, const char *after, int64_t most);
/* Whether the store has a tensor of that name. This does not take the tensor. */
bool ith_store_has(const ith_store *store, const char *name);
/* Takes a tensor of type F32, F16, BF16 or a quantised type (kernels/unpack.h) with exactly this shape. In a GGUF file
 * it may lack sizes of 1 at the beginning of the shape, and have the first two of five sizes multiplied. *out belongs
 * to the store and is valid until it is released. Its data is aligned to its type: if the file's data is not aligned,
 * it is copied. out NULL: the tensor counts as taken, and nothing is copied. A tensor may be taken more than once.
 * ITH_ERR_FORMAT if the tensor is missing or has another shape, ITH_ERR_UNSUPPORTED for another type. */
ith_status ith_store_take(ith_context *context, ith_store *store, const char *name, int dims, const int64_t *shape,
                          const ith_tensor **out);
/* Returns the scales of a taken weight of type fp8 or I8, w = scale * q, in *scale: row i has the factor (*scale)[i *
 * *stride]. *scale becomes NULL if the weight has none. The scales live as long as the store. ITH_ERR_FORMAT if a scale
 * is not finite. */
ith_status ith_store_scale(ith_context *context, const ith_store *store, const ith_tensor *tensor, const float **scale,
                           int64_t *stride);
/* The path of the file that holds a tensor of the store. It lives as long as the store. */
const char *ith_store_file_of(const ith_store *store, const ith_tensor *tensor);
/* The sum of the bytes of all tensors in the files. */
int64_t ith_store_bytes(const ith_store *store);
/* The bytes of memory that a store with files holds when it is opened: its lists of tensors, and their names. */
int64_t ith_store_held_bytes(const ith_store *store);
/* Checks that no file of the store was replaced, changed or removed since the store was opened. Takes two system calls
 * a file. ITH_ERR_IO names the file. */
ith_status ith_store_check_unchanged(ith_context *context, const ith_store *store);
/* Ends the use of a taken tensor: frees its copy, and counts its bytes as progress. NULL is accepted. */
void ith_store_release(ith_store *store, const ith_tensor *tensor);
/* Counts the bytes of a taken tensor as progress. The tensor stays in use until the store is closed. NULL is accepted.
 */
void ith_store_retain(ith_store *store, const ith_tensor *tensor);
/* Counts every tensor whose name begins with `prefix` as taken, because the caller does not need them. */
void ith_store_skip(ith_store *store, const char *prefix);
/* Computes a hash of the names, types and shapes of all tensors, and of a few numbers of each. Two stores with the same
 * hash are almost certainly equal. */
ith_status ith_store_hash(ith_context *context, const ith_store *store, uint64_t *hash);

/* Checks that every tensor was taken or skipped. Otherwise returns ITH_ERR_UNSUPPORTED, with a sentence that names a
 * tensor that was neither taken nor skipped. */
ith_status ith_store_check_all_taken(ith_context *context, const ith_store *store);

#endif
