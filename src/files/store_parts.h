/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a store, for the files of this folder that open it and that take its tensors. */
#ifndef ITH_FILES_STORE_PARTS_H
#define ITH_FILES_STORE_PARTS_H

#include "../base/observer.h"
#include "random_tensors.h"
#include "store.h"

/* One tensor of the store. */
typedef struct ith_store_entry {
    ith_tensor tensor;        /* as in its file, but with its canonical name, and with data in `copy` if there is one */
    int64_t shard;            /* index of the tensor's file in ith_store.shards */
    const ith_tensor *origin; /* the tensor in its file; NULL: an index names it, but no file with it was read so far */
    bool taken;               /* whether a caller has taken or skipped the tensor */
    char *name;               /* memory of the canonical name if it is not the name in the file; NULL: none */
    const ith_tensor *scale;  /* the scales of an fp8 or int8 weight, in its file; NULL: none */
    float *factors;           /* these scales as f32; NULL until ith_store_scale is called */
    bool needs_scale;         /* whether the file says that the weight has scales */
    void *copy;               /* aligned copy of the data if the file's data is misaligned; NULL: none */
} ith_store_entry;

/* One file of the component. A component consists of one or more files, called shards. */
typedef struct ith_store_shard {
    char *path;
    ith_tensor_file *file;
} ith_store_shard;

/* The files of a component, and the list of its tensors. */
struct ith_store {
    ith_context *context;
    char *path; /* ith_store_path */
    ith_store_shard *shards;
    int64_t shard_count;
    ith_store_entry *entries; /* all tensors of the store, ordered by name */
    int64_t entry_count;
    ith_span shown;             /* the store's part of the progress display, whose total is the bytes of all tensors */
    int64_t used_bytes;         /* bytes of the tensors released, retained or skipped so far */
    ith_random_tensors *random; /* the tensors of a store without files; NULL: the tensors come from files */
};

/* Makes an empty store. After a failure *out is NULL. */
ith_status ith_store_create(ith_context *context, ith_store **out);
/* The path of the file that holds an entry. */
const char *ith_store_path_of(const ith_store *store, const ith_store_entry *entry);
/* Compares entries by name, for qsort and bsearch. */
int ith_store_entry_by_name(const void *a, const void *b);
/* Returns the entry of the tensor `name`; NULL if the store has no such tensor. */
ith_store_entry *ith_store_find(const ith_store *store, const char *name);
/* Finds the scales of all fp8 and int8 weights of a store whose entries are ordered. Counts the tensors that hold or
 * describe scales as taken. ITH_ERR_UNSUPPORTED for an unknown quantisation, ITH_ERR_FORMAT for a weight that lacks its
 * scales; the sentence names it. */
ith_status ith_store_find_scales(ith_store *store);

#endif
