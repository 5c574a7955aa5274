/* SPDX-License-Identifier: Apache-2.0 */
/* Lists weight files by their names: single files, and series of shards. */
#ifndef ITH_WAN_WEIGHT_FILES_H
#define ITH_WAN_WEIGHT_FILES_H

#include "../../base/context.h"

/* The weight files of a folder and its subfolders. A series of shards is listed by its first file. */
typedef struct ith_weight_list {
    char **paths;
    int64_t count;
    char *pickle;     /* a file that is a PyTorch pickle; NULL: there is none */
    char *checkpoint; /* a subfolder with a model_index.json; NULL: there is none */
} ith_weight_list;

/* Lists the weight files under a folder, `depth` folders deep (0: of the folder itself), ordered by path. The caller
 * frees *out with ith_weight_list_free, also after a failure. */
ith_status ith_weight_list_read(ith_context *context, const char *folder, int depth, ith_weight_list *out);
void ith_weight_list_free(ith_context *context, ith_weight_list *list);

/* Sets *paths to the files of the component to which `path` belongs: all shards if it is one of a series
 * ("NAME-00001-of-00003.safetensors"), otherwise the file alone. The caller frees *paths with ith_paths_free. */
ith_status ith_weight_series(ith_context *context, const char *path, char ***paths, int64_t *count);
void ith_paths_free(ith_context *context, char **paths, int64_t count);

/* Whether the name of a file ends as a PyTorch pickle's does. */
bool ith_is_pickle(const char *path);
/* Whether a path is a folder on this host. A lent model has none. */
bool ith_is_folder(const char *path);
/* Whether there is a file folder/name. */
bool ith_has_file(ith_context *context, const char *folder, const char *name);

#endif
