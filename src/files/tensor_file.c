/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes files of tensors. */
#include "tensor_file_parts.h"

#include <string.h>

/* Reads a mapped file in the format that its first bytes name. */
static ith_status read_mapped(ith_tensor_file *file)
{
    char magic[sizeof ITH_GGUF_MAGIC - 1] = {0};
    if (file->mapping.bytes < (int64_t)sizeof magic)
        return ith_safetensors_read(file);
    ith_status status = ith_mapping_copy(file->context, file->path, magic, file->mapping.data, (int64_t)sizeof magic);
    if (status)
        return status;
    return memcmp(magic, ITH_GGUF_MAGIC, sizeof magic) ? ith_safetensors_read(file) : ith_gguf_read(file);
}

ith_status ith_tensor_file_open(ith_context *context, const char *path, ith_tensor_file **out)
{
    if (out)
        *out = NULL;
    ith_status status = ith_need_to_make(context, path, "path", out);
    if (status)
        return status;
    ith_tensor_file *file = ith_alloc_zero(context, 1, sizeof *file, "a tensor file");
    if (!file)
        return ITH_ERR_MEMORY;
    status = ITH_ERR_MEMORY;
    file->context = ith_context_hold(context);
    file->path = ith_strdup(context, path);
    if (file->path)
        status = ith_mapping_open(context, path, &file->mapping);
    if (!status)
        status = read_mapped(file);
    if (status)
        ith_tensor_file_close(&file);
    *out = file;
    return status;
}

void ith_tensor_file_close(ith_tensor_file **file)
{
    if (!file || !*file)
        return;
    ith_context *context = (*file)->context;
    ith_mapping_close(&(*file)->mapping);
    ith_free(context, (*file)->tensors);
    ith_free(context, (*file)->pairs);
    ith_free(context, (*file)->arrays);
    ith_free(context, (*file)->text);
    ith_free(context, (*file)->path);
    ith_free(context, *file);
    ith_context_release(context);
    *file = NULL;
}

int64_t ith_tensor_file_held_bytes(const ith_tensor_file *file)
{
    return ith_alloc_bytes(file) + ith_alloc_bytes(file->path) + ith_alloc_bytes(file->text) +
           ith_alloc_bytes(file->tensors) + ith_alloc_bytes(file->pairs) + ith_alloc_bytes(file->arrays);
}

int64_t ith_tensor_file_offset(const ith_tensor_file *file, const ith_tensor *tensor)
{
    return (tensor ? (const char *)tensor->data : file->data) - (const char *)file->mapping.data;
}

ith_status ith_tensor_file_check(ith_context *context, const ith_tensor_file *file)
{
    return ith_mapping_check(context, file->path, &file->mapping);
}

int64_t ith_tensor_file_count(const ith_tensor_file *file)
{
    return file ? file->count : 0;
}

const ith_tensor *ith_tensor_file_at(const ith_tensor_file *file, int64_t index)
{
    return file && index >= 0 && index < file->count ? &file->tensors[index] : NULL;
}
