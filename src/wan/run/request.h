/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a run: reads the caller's options, fills in defaults, and checks the values. */
#ifndef ITH_WAN_REQUEST_H
#define ITH_WAN_REQUEST_H

#include "pipeline.h"

/* The structs to which the members of ith_generate_options point. */
typedef struct ith_request_parts {
    ith_attn_options attention;
    ith_image image, last_image;
} ith_request_parts;

/* Copies the options `given` to *options, fills in defaults, and checks them. The pointers of *options to other structs
 * then point into *parts. With `sized`, the size of the video is read from the file options->from_latents, if there is
 * one, and the header of options->noise_file is checked. With options->resume_file, *saved becomes its open file,
 * otherwise NULL; the caller closes it, also after a failure, with ith_saved_run_close. Strings of the options may lie
 * in it. */
ith_status ith_request_read(const ith_pipeline *pipeline, ith_context *context, const ith_generate_options *given,
                            bool sized, ith_generate_options *options, ith_request_parts *parts, ith_saved_run **saved);
/* Checks that `cfg` is a value of its enum, and not AUTO. */
ith_status ith_request_check_cfg(ith_context *context, ith_cfg cfg);
/* Checks that the guidance branches can be distributed over `ranks` ranks. */
ith_status ith_request_check_ranks(ith_context *context, const ith_generate_options *options, int ranks);

#endif
