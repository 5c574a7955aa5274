/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a saved run (checkpoint_file): a run between two denoising steps. It is a .safetensors file with the
 * latents and the solver's arrays. Its metadata are the step, the options that shape the result, and hashes of the
 * model, the first noise, the tensors and the metadata itself. A run that begins with this file (resume_file) gives the
 * bits of a run that was not interrupted. */
#ifndef ITH_WAN_SAVED_RUN_H
#define ITH_WAN_SAVED_RUN_H

#include "../../base/version.h"
#include "../../files/tensor.h"
#include "../sample/latents.h"
#include "../sample/sampler.h"

/* The version of the library that writes a file, and the number of its format. The number grows whenever files that the
 * same version has written before cannot be resumed any more, such as when a hash is computed in another way. */
#define ITH_SAVED_VERSION ITH_VERSION_TEXT ", format 2"
#define ITH_SAVED_MOST_TENSORS (1 + ITH_SAMPLER_MOST_ARRAYS)
#define ITH_SAVED_ATTENTION_BYTES 192

/* The properties of a run that its file keeps besides its tensors. */
typedef struct ith_saved_facts {
    const ith_generate_options *options; /* resolved; options->attention is not NULL */
    int64_t step;                        /* number of steps that are done */
    uint64_t model_hash, noise_hash;
    const char *plan;      /* the plan of the self-attention as text; "": there was none yet */
    const char *attention; /* the choices of this plan that change bits (ith_saved_attention); "": there was none yet */
} ith_saved_facts;

/* An open file of a saved run. */
typedef struct ith_saved_run {
    ith_tensor_file *file;
    char *path;
    int64_t step;
    uint64_t model_hash, noise_hash, state_hash, metadata_hash;
    const char *attention;
} ith_saved_run;

/* Writes the file beside `path` and renames it. tensors[0]: the latents, then the solver's arrays, each of `size`. */
ith_status ith_saved_run_write(ith_context *context, const char *path, const ith_saved_facts *facts,
                               const ith_latent_size *size, float *const *tensors, int64_t count);

/* Opens a file of a saved run. ITH_ERR_FORMAT if it is no such file, ITH_ERR_UNSUPPORTED if another version of the
 * library has written it. */
ith_status ith_saved_run_open(ith_context *context, const char *path, ith_saved_run **out);
/* Whether the saved run, which may be NULL, has done all steps of the options. */
bool ith_saved_run_is_denoised(const ith_saved_run *saved, const ith_generate_options *options);
void ith_saved_run_close(ith_context *context, ith_saved_run **saved);
/* Fills in the options of the saved run. An option that the caller gives, so that it differs from
 * ITH_GENERATE_OPTIONS_INIT, must equal the option of the saved run; otherwise ITH_ERR_ARGUMENT with the option's name.
 * Strings live as long as `saved`. */
ith_status ith_saved_run_take(ith_context *context, const ith_saved_run *saved, ith_generate_options *options,
                              ith_attn_options *attention);
/* Reads tensor `index` of a run with this solver, which must have exactly this size, to `out`, and adds its numbers to
 * *hash. ITH_ERR_FORMAT if a number is not finite. */
ith_status ith_saved_run_read(ith_context *context, const ith_saved_run *saved, ith_solver solver, int64_t index,
                              const ith_latent_size *size, float *out, uint64_t *hash);
/* Checks `hash`, to which ith_saved_run_read has added all tensors, in any order. It must have begun at 0. */
ith_status ith_saved_run_check_hash(ith_context *context, const ith_saved_run *saved, uint64_t hash);

/* The bytes of a file with `count` tensors, without its header. */
int64_t ith_saved_run_bytes(const ith_latent_size *size, int64_t count);
/* Checks that the disk has room for two files of this size: while one is replaced, both are there. */
ith_status ith_saved_run_check_room(ith_context *context, const char *path, int64_t bytes);
/* Writes the choices of a plan that change the bits of its result as text. */
void ith_saved_attention(const ith_plan *plan, char text[ITH_SAVED_ATTENTION_BYTES]);

#endif
