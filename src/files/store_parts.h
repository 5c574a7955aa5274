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
    const ith_tensor *origin; /* the tensor in its file; NULL: an index names it, and no file had it so far */
    bool taken;               /* whether a caller has taken or skipped the tensor */
    char *name;               /* memory of the canonical name if it is not the name in the file; NULL: none */
    const ith_tensor *scale;  /* the scales of an fp8 or int8 weight, in its file; NULL: none */
    float *factors;           /* these scales as f32, once they were asked for */
    bool needs_scale;         /* whether the file says that the weight has scales */
    void *copy;               /* aligned copy of the data if they are misaligned in the file; NULL: none */
} ith_store_entry;

/* One file of the component. A component consists of one or more files, called shards. */
typedef struct ith_store_shard {
    char *path;
    ith_tensor_file *file;
} ith_store_shard;

struct ith_store {
    ith_context *context;
    char *path; /* path of the index, or of the first file, for messages */
    ith_store_shard *shards;
    int64_t shard_count;
    ith_store_entry *entries; /* all tensors of the store, ordered by name */
    int64_t entry_count;
    /* the part of the progress display that this store fills; its total is the bytes of all tensors */
    ith_span shown;
    int64_t used_bytes;         /* bytes of the tensors released, retained or skipped so far */
    ith_random_tensors *random; /* the tensors of a store without files; NULL: the tensors come from files */
};

/* Compares entries by name, for qsort and bsearch. */
int ith_store_entry_by_name(const void *a, const void *b);
/* Returns the entry of the tensor `name`; NULL if the store has no such tensor. */
ith_store_entry *ith_store_find(const ith_store *store, const char *name);
/* Finds the scales of all fp8 and int8 weights of a store whose entries are ordered, and counts the tensors that tell
 * about them as taken. ITH_ERR_UNSUPPORTED names a quantisation that is not known, ITH_ERR_FORMAT a weight that lacks
 * its scales. */
ith_status ith_store_find_scales(ith_store *store);

#endif
