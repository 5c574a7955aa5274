/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of an open file of tensors: their orders, and the tensors and values in them. */
#include "tensor_file_parts.h"

#include "../base/size.h"
#include "quote.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ith_tensor *)a)->name, ((const ith_tensor *)b)->name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const ith_metadata_pair *)a)->key, ((const ith_metadata_pair *)b)->key);
}

void ith_tensor_file_sort(ith_tensor_file *file, int (*compare)(const void *, const void *))
{
    int64_t i = 1;
    while (i < file->count && compare(&file->tensors[i - 1], &file->tensors[i]) <= 0)
        i++;
    if (i < file->count)
        qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, compare);
}

void ith_tensor_file_order(ith_tensor_file *file)
{
    ith_tensor_file_sort(file, by_name);
    qsort(file->pairs, (size_t)file->pair_count, sizeof *file->pairs, by_key);
}

int ith_tensor_by_place(const void *a, const void *b)
{
    const ith_tensor *x = a, *y = b;
    uintptr_t x_begin = (uintptr_t)x->data, y_begin = (uintptr_t)y->data;
    if (x_begin != y_begin)
        return x_begin < y_begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

ith_status ith_tensor_file_check_cover(const ith_tensor_file *file, int64_t alignment)
{
    int64_t next = 0;
    for (int64_t i = 0; i < file->count; i++) {
        const ith_tensor *tensor = &file->tensors[i];
        const int64_t begin = (const char *)tensor->data - file->data;
        if (begin != next)
            return ith_fail(file->context, ITH_ERR_FORMAT, "%s: tensor '%s' starts at byte %lld of the data, %s",
                            file->path, ith_quote(tensor->name).text, (long long)begin,
                            begin < next ? "where it overlaps another tensor" : "and leaves a gap before it");
        if (tensor->bytes > file->data_bytes - begin)
            return ith_fail(file->context, ITH_ERR_FORMAT, "%s: tensor '%s' ends beyond the file: it is cut",
                            file->path, ith_quote(tensor->name).text);
        next = ith_round_up(begin + tensor->bytes, alignment);
    }
    if (file->data_bytes > next)
        return ith_fail(file->context, ITH_ERR_FORMAT, "%s: holds %lld bytes of data, but its tensors take %lld",
                        file->path, (long long)file->data_bytes, (long long)next);
    return ITH_OK;
}

const ith_tensor *ith_tensor_file_find(const ith_tensor_file *file, const char *name)
{
    if (!file || !name)
        return NULL;
    const ith_tensor key = {.struct_size = sizeof(ith_tensor), .name = name};
    return bsearch(&key, file->tensors, (size_t)file->count, sizeof *file->tensors, by_name);
}

const char *ith_tensor_file_metadata(const ith_tensor_file *file, const char *key)
{
    if (!file || !key)
        return NULL;
    const ith_metadata_pair wanted = {.key = key};
    const ith_metadata_pair *pair =
        bsearch(&wanted, file->pairs, (size_t)file->pair_count, sizeof *file->pairs, by_key);
    return pair ? pair->value : NULL;
}
