/* SPDX-License-Identifier: Apache-2.0 */
/* The place of an output: its final name, and the partial name under which it is written. */
#ifndef ITH_MEDIA_OUTPUT_H
#define ITH_MEDIA_OUTPUT_H

#include "../base/context.h"

typedef struct ith_output {
    char *path;    /* as given by the caller, for sentences */
    char *target;  /* path with symbolic links resolved and without a trailing '/' */
    char *partial; /* the partial file or folder; NULL: there is none */
    bool folder;   /* the output is a folder of PNGs */
    bool existing; /* the folder exists already, and the partial folder lies inside it */
} ith_output;

/* Creates the partial file or folder. */
ith_status ith_output_reserve(ith_context *context, const char *path, bool folder, ith_output *output);
/* Renames the partial output to its final name. */
ith_status ith_output_commit(ith_context *context, ith_output *output);
/* Removes the partial file or folder, if it exists, and frees the names. */
void ith_output_release(ith_context *context, ith_output *output);

#endif
