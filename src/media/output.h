/* SPDX-License-Identifier: Apache-2.0 */
/* Where an output goes: its final name, and the name beside it under which it is written until it is whole. */
#ifndef ITH_MEDIA_OUTPUT_H
#define ITH_MEDIA_OUTPUT_H

#include "../base/context.h"

typedef struct ith_output {
    char *path;    /* as the caller wrote it, for sentences */
    char *target;  /* the same with symbolic links followed and without '/' at its end */
    char *partial; /* a file or a folder of ours, NULL when there is none */
    bool folder;   /* PNGs */
    bool existing; /* the folder was there before: the partial one lies inside it */
} ith_output;

/* Creates the partial file or folder. */
ith_status ith_output_reserve(ith_context *context, const char *path, bool folder, ith_output *output);
/* Gives what was written its name. */
ith_status ith_output_commit(ith_context *context, ith_output *output);
/* Removes the partial file or folder, if there still is one, and frees the names. */
void ith_output_release(ith_context *context, ith_output *output);

#endif
