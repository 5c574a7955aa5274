/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a run writes. */
#ifndef ITH_WAN_OUTPUT_FILES_H
#define ITH_WAN_OUTPUT_FILES_H

#include <ithaca/wan.h>

#include "../model/model.h"

/* Checks, before the long computation, that dump_file, latents_file and checkpoint_file can be written, and that none
 * of them is another file of the run or of its model. The weight files must be open (ith_model_check_weights). A saved
 * run may replace the file that it resumes. ITH_ERR_IO, ITH_ERR_ARGUMENT. */
ith_status ith_output_files_check(ith_context *context, const ith_generate_options *options, const ith_model *model);

#endif
