/* SPDX-License-Identifier: Apache-2.0 */
/* Lists weight files by their names (weight_files.h). */
#include "weight_files.h"

#include "../../base/lent_files.h"
#include "../../files/suffix.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_FILES 1000

bool ith_is_pickle(const char *path)
{
    return ith_suffix(path, ".pth") || ith_suffix(path, ".pt") || ith_suffix(path, ".ckpt") || ith_suffix(path, ".bin");
}

static bool is_weights(const char *path)
{
    return ith_suffix(path, ".safetensors") || ith_suffix(path, ".gguf");
}

bool ith_is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

bool ith_has_file(ith_context *context, const char *folder, const char *name)
{
    char path[PATH_MAX]; /* on the stack: a lack of memory must not look like a lack of the file */
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length < PATH_MAX && !access(ith_lent_path(context, path), F_OK);
}

/* ---- Series ---------------------------------------------------------------------------------------------------- */

/* The parts of a name "STEM-00002-of-00003.safetensors". */
typedef struct series {
    int stem_bytes, number, count; /* count 0: the file is no shard of a series */
    const char *end;               /* ".safetensors" or ".gguf" */
} series;

/* The end of a shard's name before its extension; a 0 stands for any digit. */
static const char numbering[] = "-00000-of-00000";

static bool is_numbered(const char *text)
{
    for (size_t i = 0; numbering[i]; i++)
        if (numbering[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != numbering[i])
            return false;
    return true;
}

static series series_of(const char *path)
{
    series s = {0};
    const char *dot = strrchr(path, '.');
    const size_t tail = strlen(numbering);
    if (!dot || !is_weights(path) || (size_t)(dot - path) <= tail || !is_numbered(dot - tail))
        return s;
    const char *begin = dot - tail;
    sscanf(begin, "-%d-of-%d", &s.number, &s.count);
    if (s.number < 1 || s.number > s.count || s.count > MOST_FILES)
        return (series){0};
    s.stem_bytes = (int)(begin - path), s.end = dot;
    return s;
}

void ith_paths_free(ith_context *context, char **paths, int64_t count)
{
    for (int64_t i = 0; paths && i < count; i++)
        ith_free(context, paths[i]);
    ith_free(context, paths);
}

ith_status ith_weight_series(ith_context *context, const char *path, char ***paths, int64_t *count)
{
    const series s = series_of(path);
    *count = 0;
    if (!(*paths = ith_alloc_zero(context, s.count ? s.count : 1, sizeof **paths, "a list of weight files")))
        return ITH_ERR_MEMORY;
    for (int i = 0; i < (s.count ? s.count : 1); i++) {
        char *one = s.count ? ith_format(context, "%.*s-%05d-of-%05d%s", s.stem_bytes, path, i + 1, s.count, s.end)
                            : ith_strdup(context, path);
        if (!one)
            return ITH_ERR_MEMORY;
        (*paths)[(*count)++] = one;
    }
    return ITH_OK;
}

/* ---- Folders --------------------------------------------------------------------------------------------------- */

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Adds a weight file, or the folder of a model_index.json, to the list, which takes the path. */
static ith_status add(ith_context *context, char *path, ith_weight_list *out)
{
    static const char index[] = "/model_index.json";
    if (ith_suffix(path, index) && !out->checkpoint) {
        path[strlen(path) + 1 - sizeof index] = '\0';
        out->checkpoint = path;
        return ITH_OK;
    }
    if (ith_is_pickle(path) && !out->pickle) {
        out->pickle = path;
        return ITH_OK;
    }
    if (!is_weights(path) || series_of(path).number > 1) {
        ith_free(context, path);
        return ITH_OK;
    }
    if (out->count < MOST_FILES) {
        out->paths[out->count++] = path;
        return ITH_OK;
    }
    ith_status status =
        ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: the folder holds more than %d weight files", path, MOST_FILES);
    ith_free(context, path);
    return status;
}

/* Adds the weight files of a folder and of its subfolders, `depth` folders deep. */
static ith_status list_files(ith_context *context, const char *folder, int depth, ith_weight_list *out)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, is_visible, alphasort);
    ith_status status = ITH_OK;
    if (count < 0)
        return ith_fail(context, ITH_ERR_IO, "no model_index.json is in %s, and the folder cannot be read: %s", folder,
                        strerror(errno));
    for (int i = 0; i < count; i++) {
        char *path = status ? NULL : ith_format(context, "%s/%s", folder, entries[i]->d_name);
        free(entries[i]);
        if (status || !path) {
            status = status ? status : ITH_ERR_MEMORY;
        } else if (!ith_is_folder(path)) {
            status = add(context, path, out);
        } else {
            status = depth ? list_files(context, path, depth - 1, out) : ITH_OK;
            ith_free(context, path);
        }
    }
    free(entries);
    return status;
}

ith_status ith_weight_list_read(ith_context *context, const char *folder, int depth, ith_weight_list *out)
{
    *out = (ith_weight_list){0};
    if (!(out->paths = ith_alloc_zero(context, MOST_FILES, sizeof *out->paths, "a list of weight files")))
        return ITH_ERR_MEMORY;
    return list_files(context, folder, depth, out);
}

void ith_weight_list_free(ith_context *context, ith_weight_list *list)
{
    ith_paths_free(context, list->paths, list->count);
    ith_free(context, list->pickle);
    ith_free(context, list->checkpoint);
    *list = (ith_weight_list){0};
}
