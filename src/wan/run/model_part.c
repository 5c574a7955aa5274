/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the weight files of a model's components (ith_pipeline_part). */
#include "pipeline.h"

#include "../../base/context.h"
#include "../../base/count.h"
#include "../../base/sized.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TYPES 64

/* A type, and the bytes of all tensors of this type. */
typedef struct type_bytes {
    ith_dtype type;
    int64_t bytes;
} type_bytes;

static int by_bytes(const void *a, const void *b)
{
    const type_bytes *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* Counts the tensors of a store, and lists their types. */
static void count_tensors(const ith_store *store, ith_model_part *part)
{
    type_bytes types[MOST_TYPES] = {{0}};
    int count = 0;
    const ith_tensor *tensor;
    for (; (tensor = ith_store_at(store, part->tensors)); part->tensors++) {
        int i = 0;
        while (i < count && types[i].type != tensor->dtype)
            i++;
        if (i == count && count == MOST_TYPES)
            continue;
        count += i == count;
        types[i].type = tensor->dtype;
        types[i].bytes += tensor->bytes;
        part->bytes += tensor->bytes;
    }
    qsort(types, (size_t)count, sizeof *types, by_bytes);
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(part->types);
        snprintf(part->types + used, sizeof part->types - used, "%s%s", i ? ", " : "", ith_dtype_name(types[i].type));
    }
}

ith_status ith_pipeline_part(ith_pipeline *pipeline, int index, ith_model_part *part)
{
    static const ith_part order[] = {ITH_PART_DIT, ITH_PART_DIT_2, ITH_PART_TEXT, ITH_PART_VAE, ITH_PART_VISION};
    ith_model_part full = ITH_MODEL_PART_INIT;
    ith_store *store = NULL;
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_context *context = pipeline->context;
    const ith_model *model = pipeline->model;
    int at = -1; /* the place of the component among all */
    for (int i = 0; i < ITH_COUNT(order) && index >= 0; i++)
        if (ith_model_has_part(model, order[i]) && !index--)
            at = i;
    if (at < 0)
        return ITH_SIZED_FILL(context, ith_model_part, ITH_MODEL_PART_INIT, part, &full);
    const ith_part which = order[at];
    ith_status status = ith_model_open_part(context, model, which, &store);
    if (!status) {
        full.name = ith_part_name(which);
        full.path = ith_source_path(&model->sources, which);
        count_tensors(store, &full);
        status = ITH_SIZED_FILL(context, ith_model_part, ITH_MODEL_PART_INIT, part, &full);
    }
    ith_store_close(&store);
    return status;
}
