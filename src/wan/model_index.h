/* SPDX-License-Identifier: Apache-2.0 */
/* model_index.json: which classes the components are of, and how the experts share the work. */
#ifndef ITH_WAN_MODEL_INDEX_H
#define ITH_WAN_MODEL_INDEX_H

#include "sample/scheduler.h"

typedef struct ith_model_index {
    int experts;       /* 1 or 2 */
    double boundary;   /* boundary_ratio: 0 with one expert; NAN with two and none given */
    ith_solver solver; /* of the scheduler's class */
} ith_model_index;

/* ITH_ERR_UNSUPPORTED, naming what it is, for a pipeline or a component of another class. */
ith_status ith_model_index_read(ith_context *context, const char *folder, ith_model_index *out);

#endif
