/* SPDX-License-Identifier: Apache-2.0 */
/* Weight files of full size without data: they are sparse, and have only headers. They lie in the folder of
 * support/folder_fixture.h. */
#ifndef ITH_TESTS_SPARSE_WEIGHTS_H
#define ITH_TESTS_SPARSE_WEIGHTS_H

#include <jansson.h>

typedef enum sparse_form { SPARSE_ORIGINAL, SPARSE_PREFIXED, SPARSE_DIFFUSERS, SPARSE_GGUF } sparse_form;

/* A weight file of the test's folder: NAME, or NAME-0000i-of-0000n in `shards`, with the tensors of a model of
 * golden/published.json. */
typedef struct sparse_weights {
    const char *name, *model;
    int layers;
    const char *type; /* "F32", "F16", "BF16"; in a SPARSE_GGUF file the type of matrices, "q4_k", ... */
    sparse_form form;
    int shards;
    const char *extra; /* the name of one more tensor, [4]; NULL: none */
    int scaled;        /* matrices of layers are F8_E4M3: 1 with their scale_weight, as Comfy writes them, 2 without,
                          3 plain fp8 */
} sparse_weights;

/* Writes a text file, and the folders of its path. */
void sparse_write_text(const char *name, const char *text);
/* Writes a weight file, or its shards and their index. published: the object of golden/published.json. */
void sparse_write_weights(const sparse_weights *w, const json_t *published);

#endif
