/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the weights of a diffusers checkpoint as other programs publish them: with other names, prefixes and number
 * types, in one file or in shards. */
#ifndef ITH_TESTS_REPACKAGE_H
#define ITH_TESTS_REPACKAGE_H

#include <ithaca/files.h>

/* Writes the name that another program gives to a tensor. */
typedef void rename_fn(const char *canonical, char *out, size_t bytes);

rename_fn name_as_is, name_original_dit, name_original_text, name_llama_text;
/* For the small checkpoint, whose autoencoder has one residual block in each level of the encoder and two in each level
 * of the decoder, followed by an upsampling. */
rename_fn name_original_vae;

/* The tensors of a file that is to be written. */
typedef struct package {
    ith_tensor tensors[400];
    char names[400][192];
    void *owned[400]; /* converted numbers */
    ith_tensor_file *files[8];
    int64_t count;
    int file_count;
} package;

/* Adds the tensors of all .safetensors files of a folder, renamed and with a prefix, as numbers of type `type`, or as
 * they are (ITH_DTYPE_NONE). */
void package_add(package *p, const char *folder, rename_fn *rename, const char *prefix, ith_dtype type);
/* Writes a safetensors file with tensors number part, part + parts, part + 2 parts, ... of the package. */
void package_write(const package *p, const char *path, int part, int parts);
void package_free(package *p);

#endif
