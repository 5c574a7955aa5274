/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a LoRA (lora.h). lora_files.c opens the files and lists their tensors, lora_join.c joins the tensors
 * of each product, and lora_take.c gives them to layers. */
#ifndef ITH_WAN_LORA_STATE_H
#define ITH_WAN_LORA_STATE_H

#include "../../files/json.h"
#include "../../files/tensor.h"
#include "lora.h"
#include "lora_keys.h"

/* The prefix of the names of settings that a pipeline of diffusers saves. A transformer saves them without. */
#define ITH_LORA_PREFIX "transformer."

/* A tensor of a file, and its part in a module. */
typedef struct ith_lora_entry {
    char *module; /* canonical name */
    int file;
    ith_lora_role role;
    const ith_tensor *tensor;
    const char *adapter; /* as in ith_lora_key */
    void *copy;          /* aligned copy of data that are misaligned in the file; NULL: none */
    double factor;       /* DOWN: strength alpha / rank; other roles: strength */
    int64_t up;          /* DOWN: index of the UP of the same product */
    bool taken;
} ith_lora_entry;

/* An open LoRA file. */
typedef struct ith_lora_opened {
    char *path;
    ith_tensor_file *file;
    ith_json *settings; /* NULL: the file has none */
    bool has_prefix;    /* the names of its settings have the prefix */
    double strength;
    bool leaves_out_image; /* as in ith_lora_source */
    int64_t left_out;      /* the number of tensors that were left out because of it */
} ith_lora_opened;

/* The LoRA files of one transformer, and the list of their tensors. */
struct ith_lora {
    ith_context *context;
    ith_lora_opened files[ITH_LORA_FILES_MAX];
    int file_count;
    ith_lora_entry *entries; /* ordered by module, file and role */
    int64_t count;
    int64_t random_rank, random_count; /* without files: the rank, and the number of numbers that all matrices share */
    uint16_t *random;                  /* [random_count], bf16 */
};

/* The name of a setting in a file. name: the name with the prefix. */
static inline const char *ith_lora_setting(const ith_lora_opened *file, const char *name)
{
    return file->has_prefix ? name : name + sizeof ITH_LORA_PREFIX - 1;
}

/* The path of the file of an entry. */
static inline const char *ith_lora_path_of(const ith_lora *lora, const ith_lora_entry *entry)
{
    return lora->files[entry->file].path;
}

/* Orders the entries of all files by module. Joins the matrices of each product, checks them, and computes factors. */
ith_status ith_lora_join(ith_lora *lora);

#endif
