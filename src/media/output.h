/* SPDX-License-Identifier: Apache-2.0 */
/* The names of an output file or folder: the final name, and the partial name under which it is written. */
#ifndef ITH_MEDIA_OUTPUT_H
#define ITH_MEDIA_OUTPUT_H

#include "../base/context.h"
#include "../base/output_place.h" /* for files that include this one, too */

/* An output that is being written. */
typedef struct ith_output {
    char *path;    /* the name as the caller gave it, for messages */
    char *target;  /* the file or folder behind symbolic links, without a trailing '/' */
    char *partial; /* name of the unfinished file or folder; NULL: there is none */
    bool folder;   /* whether the output is a folder of PNGs */
    bool existing; /* whether the folder exists already; the partial folder is then inside it */
} ith_output;

/* Checks the output: an existing folder may hold no frames and, unless '/' ends its name, no other files. Then creates
 * the unfinished file or folder under its partial name. */
ith_status ith_output_reserve(ith_context *context, const char *path, bool folder, ith_output *output);
/* Renames the complete output from its partial name to its final name. */
ith_status ith_output_commit(ith_context *context, ith_output *output);
/* Removes the unfinished file or folder, if it exists, and frees the names. */
void ith_output_release(ith_context *context, ith_output *output);

#endif
