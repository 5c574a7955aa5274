/* SPDX-License-Identifier: Apache-2.0 */
/* model_index.json: the classes of the components, and the boundary between the experts. */
#ifndef ITH_WAN_MODEL_INDEX_H
#define ITH_WAN_MODEL_INDEX_H

#include "sample/scheduler.h"

typedef struct ith_model_index {
    int experts;       /* 1 or 2 */
    double boundary;   /* boundary_ratio: 0 with one expert; NAN with two and none given */
    ith_solver solver; /* of the scheduler's class */
} ith_model_index;

/* Reads folder/model_index.json. ITH_ERR_UNSUPPORTED with the name of the class for an unknown pipeline or component.
 */
ith_status ith_model_index_read(ith_context *context, const char *folder, ith_model_index *out);

#endif
