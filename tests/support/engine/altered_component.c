/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/altered_component.h"

#include "support/fixture.h"
#include "support/temporary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TENSORS 64
#define NAME_BYTES 128

void copy_text_with(const char *path, const char *copy, const char *from, const char *to)
{
    size_t bytes = 0;
    char *text = temporary_read(path, &bytes), *at = strstr(text, from);
    assert_non_null(at);
    const size_t space = bytes + strlen(to) + 1;
    char *changed = malloc(space);
    assert_non_null(changed);
    const int used = snprintf(changed, space, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    temporary_write(copy, changed, (size_t)used);
    free(changed), free(text);
}

static bool begins(const char *name, const char *prefix)
{
    return prefix && !strncmp(name, prefix, strlen(prefix));
}

void copy_tensors_with(ith_context *own, const char *path, const char *copy, const tensor_change *change)
{
    const float two[2] = {0};
    static char names[MOST_TENSORS][NAME_BYTES];
    ith_tensor_file *file = NULL;
    ith_tensor tensors[MOST_TENSORS + 1];
    void *zeros = NULL;
    int64_t count = 0;
    check(own, ith_tensor_file_open(own, path, &file));
    assert_true(ith_tensor_file_count(file) <= MOST_TENSORS);
    for (int64_t i = 0; i < ith_tensor_file_count(file); i++) {
        ith_tensor *one = &tensors[count];
        *one = *ith_tensor_file_at(file, i);
        if (begins(one->name, change->without))
            continue;
        if (change->resized && !strcmp(one->name, change->resized)) {
            one->bytes = one->bytes / one->shape[change->dim] * change->size;
            one->shape[change->dim] = change->size;
            one->data = zeros = calloc(1, (size_t)one->bytes);
        }
        if (begins(one->name, change->renamed)) {
            snprintf(names[count], NAME_BYTES, "%s%s", change->name, one->name + strlen(change->renamed));
            one->name = names[count];
        }
        count++;
    }
    if (change->with)
        tensors[count++] = (ith_tensor){.struct_size = sizeof(ith_tensor),
                                        .name = change->with,
                                        .dtype = ITH_F32,
                                        .dims = 1,
                                        .shape = {2},
                                        .data = two,
                                        .bytes = sizeof two};
    check(own, ith_tensor_file_write(own, copy, tensors, count, NULL, NULL, 0));
    free(zeros);
    ith_tensor_file_close(&file);
}
