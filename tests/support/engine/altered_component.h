/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a component's files with one change, which tests expect to be refused or to be taken. */
#ifndef ITH_TESTS_ALTERED_COMPONENT_H
#define ITH_TESTS_ALTERED_COMPONENT_H

#include <ithaca/files.h>

/* Copies a text file, with `to` in the place of the first `from`, which must be there. */
void copy_text_with(const char *path, const char *copy, const char *from, const char *to);

/* A change of the tensors of a file. All zeros: none. */
typedef struct tensor_change {
    const char *without; /* the beginning of the names that are left out; NULL: none */
    const char *with;    /* the name of a further tensor, two zeros; NULL: none */
    const char
        *resized; /* a tensor whose size number `dim` becomes `size`, and whose numbers become zeros; NULL: none */
    int dim;
    int64_t size;
    const char *renamed, *name; /* a prefix of names, and the text that takes its place; NULL: none */
} tensor_change;

/* Copies a file of at most 64 tensors with a change. */
void copy_tensors_with(ith_context *context, const char *path, const char *copy, const tensor_change *change);

#endif
