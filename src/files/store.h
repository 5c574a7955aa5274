/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of one model component ("transformer", "vae", ...), from one file or from shards with an index. Whoever
 * loads a component takes every tensor by name and shape; what nobody took is an error that names it, so that another
 * kind of model is never mistaken for this one. Opening and taking read headers only. */
#ifndef ITH_FILES_STORE_H
#define ITH_FILES_STORE_H

#include <ithaca/files.h>

#include "../base/context.h"

typedef struct ith_store ith_store;

/* What to take where a single file and an index are both there: diffusers takes the index, transformers the file. */
typedef enum ith_store_choice { ITH_STORE_INDEX_FIRST, ITH_STORE_FILE_FIRST } ith_store_choice;

/* folder/stem.safetensors, or the shards that folder/stem.safetensors.index.json names (all inside the folder: no path
 * separators; each tensor where the index says, and nowhere else; no tensor that the index does not name). Where both
 * are there, the log says which is taken. */
ith_status ith_store_open(ith_context *context, const char *folder, const char *stem,
                                      ith_store_choice choice, ith_store **out);
void ith_store_close(ith_store **store);
/* From now on the context's observer is shown, as progress of that stage, how many bytes of the tensors have been
 * released or skipped, and all when all are taken. */
void ith_store_show(ith_store *store, int stage);

/* Whether a tensor of that name is there; does not take it. */
bool ith_store_has(const ith_store *store, const char *name);
/* Takes a tensor of F32, F16 or BF16 that must have exactly this shape. *out belongs to the store and is valid until it
 * is released; its data is aligned to its type (a copy, if the file has it elsewhere). out NULL: the tensor counts as
 * taken, and nothing is copied. A tensor may be taken again. */
ith_status ith_store_take(ith_context *context, ith_store *store, const char *name, int dims, const int64_t *shape,
                          const ith_tensor **out);
/* Says that a taken tensor's data has been used: its pages of the file leave this process's memory. NULL is accepted.
 */
void ith_store_release(ith_store *store, const ith_tensor *tensor);
/* Takes without looking, every tensor whose name begins so: known to be unneeded. */
void ith_store_skip(ith_store *store, const char *prefix);
/* ITH_ERR_UNSUPPORTED naming a tensor that was not taken; ITH_OK if there is none. */
ith_status ith_store_check_all_taken(ith_context *context, const ith_store *store);

#endif
