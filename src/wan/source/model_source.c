/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of a model (model_source.h): first the files that the caller names, then the files of a folder. */
#include "model_source.h"

#include "../../base/context.h"
#include "../../base/count.h"
#include "../names/module_names.h"
#include "../text/tokenizer.h"
#include "recognise.h"
#include "weight_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FOLDER_DEPTH 3 /* depth of the folders in a repository: split_files/diffusion_models/wan2.1 */

const char *ith_part_name(ith_part part)
{
    static const char *const names[] = {"text_encoder", "transformer", "transformer_2", "vae", "image_encoder"};
    return names[part];
}

/* The caller's name and a noun for a component, and a published file of it that can be read. */
static const struct {
    const char *member, *noun, *published;
} parts[] = {
    [ITH_PART_TEXT] = {"text_encoder", "a umT5 text encoder",
                       "umt5_xxl_fp16.safetensors of Comfy-Org/Wan_2.1_ComfyUI_repackaged"},
    [ITH_PART_DIT] = {"dit", "a transformer", "diffusion_models/*.safetensors of Comfy-Org/Wan_2.2_ComfyUI_Repackaged"},
    [ITH_PART_DIT_2] = {"dit_low", "a transformer",
                        "diffusion_models/*_low_noise_*.safetensors of Comfy-Org/Wan_2.2_ComfyUI_Repackaged"},
    [ITH_PART_VAE] = {"vae", "an autoencoder",
                      "wan_2.1_vae.safetensors (for TI2V-5B wan2.2_vae.safetensors) of "
                      "Comfy-Org/Wan_2.2_ComfyUI_Repackaged"},
    [ITH_PART_VISION] = {"image_encoder", "an image encoder (CLIP)",
                         "clip_vision_h.safetensors of Comfy-Org/Wan_2.1_ComfyUI_repackaged"},
};

static bool is_transformer(ith_part part)
{
    return part == ITH_PART_DIT || part == ITH_PART_DIT_2;
}

static bool has_source(const ith_source *source)
{
    return source->folder || source->count;
}

const char *ith_source_path(const ith_sources *sources, ith_part part)
{
    const ith_source *source = &sources->parts[part];
    if (source->folder)
        return source->folder;
    return source->count ? source->paths[0] : ith_part_name(part);
}

static void free_source(ith_context *context, ith_source *source)
{
    ith_free(context, source->folder);
    ith_free(context, source->config);
    ith_paths_free(context, source->paths, source->count);
    *source = (ith_source){0};
}

void ith_sources_free(ith_context *context, ith_sources *sources)
{
    for (int part = 0; part < ITH_PARTS; part++)
        free_source(context, &sources->parts[part]);
    ith_free(context, sources->folder);
    ith_free(context, sources->variant);
    ith_free(context, sources->tokenizer);
    *sources = (ith_sources){0};
}

/* ---- Opening --------------------------------------------------------------------------------------------------- */

/* The layout of each component in a diffusers checkpoint, and the names of its tensors in files of other origins. */
static const struct {
    const char *stem;
    ith_store_choice choice;
    ith_store_name_fn name;
    bool renames; /* names in a diffusers checkpoint need not be canonical: transformers 5 leaves out a prefix */
} layouts[] = {[ITH_PART_TEXT] = {"model", ITH_STORE_FILE_FIRST, ith_text_name, false},
               [ITH_PART_DIT] = {"diffusion_pytorch_model", ITH_STORE_INDEX_FIRST, ith_dit_name, false},
               [ITH_PART_DIT_2] = {"diffusion_pytorch_model", ITH_STORE_INDEX_FIRST, ith_dit_name, false},
               [ITH_PART_VAE] = {"diffusion_pytorch_model", ITH_STORE_INDEX_FIRST, ith_vae_name, false},
               [ITH_PART_VISION] = {"model", ITH_STORE_FILE_FIRST, ith_vision_name, true}};

/* Sets *path to the file of a component in the variant: the index of the shards or the single file, in the order of the
 * layout. NULL: the component has no such file. The caller frees it. */
static ith_status find_variant(ith_context *context, const char *folder, const char *variant, ith_part part,
                               char **path)
{
    *path = NULL;
    for (int i = 0; i < 2 && !*path; i++) {
        const bool index = (i == 0) == (layouts[part].choice == ITH_STORE_INDEX_FIRST);
        char *name = index ? ith_format(context, "%s.safetensors.index.%s.json", layouts[part].stem, variant)
                           : ith_format(context, "%s.%s.safetensors", layouts[part].stem, variant);
        const bool found = name && ith_has_file(context, folder, name);
        if (found)
            *path = ith_format(context, "%s/%s", folder, name);
        const bool lacks = !name || (found && !*path);
        ith_free(context, name);
        if (lacks)
            return ITH_ERR_MEMORY;
    }
    return ITH_OK;
}

/* Opens a component of a diffusers checkpoint: the files of the variant if it has such files, otherwise the usual
 * files. */
static ith_status open_folder(ith_context *context, const char *folder, const char *variant, ith_part part,
                              ith_store **out)
{
    const ith_store_names renamed = {layouts[part].name, NULL}, *names = layouts[part].renames ? &renamed : NULL;
    char *path = NULL;
    ith_status status = variant ? find_variant(context, folder, variant, part, &path) : ITH_OK;
    if (!status && path)
        status = ith_store_open_files(context, (const char *const *)&path, 1, names, out);
    else if (!status)
        status = ith_store_open_as(context, folder, layouts[part].stem, layouts[part].choice, names, out);
    ith_free(context, path);
    return status;
}

ith_status ith_source_open(ith_context *context, const ith_sources *sources, ith_part part, ith_store **out)
{
    const ith_source *source = &sources->parts[part];
    *out = NULL;
    if (source->folder)
        return open_folder(context, source->folder, sources->variant, part, out);
    const ith_store_names names = {layouts[part].name, &source->in_level};
    return ith_store_open_files(context, (const char *const *)source->paths, source->count, &names, out);
}

/* Whether a folder is a checkpoint in the layout of diffusers, perhaps a damaged one. */
static bool is_checkpoint(ith_context *context, const char *folder)
{
    return ith_has_file(context, folder, "model_index.json") ||
           ith_has_file(context, folder, "transformer/config.json");
}

/* ---- One component --------------------------------------------------------------------------------------------- */

static ith_status refuse_pickle(ith_context *context, const char *path, ith_part part)
{
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "%s is a PyTorch pickle, which is not read because it can run code: %s can be %s", path,
                    parts[part].member, parts[part].published);
}

/* Opens the headers of the weight files to which `path` belongs, and recognises their contents. */
static ith_status look_into(ith_context *context, const char *path, ith_contents *contents)
{
    char **paths = NULL;
    int64_t count = 0;
    ith_store *raw = NULL;
    ith_status status = ith_weight_series(context, path, &paths, &count);
    if (!status)
        status = ith_store_open_files(context, (const char *const *)paths, count, NULL, &raw);
    if (!status)
        *contents = ith_recognise(raw);
    ith_store_close(&raw);
    ith_paths_free(context, paths, count);
    return status;
}

static bool has_part(const ith_contents *contents, ith_part part)
{
    return part == ITH_PART_TEXT     ? contents->text
           : part == ITH_PART_VAE    ? contents->vae
           : part == ITH_PART_VISION ? contents->vision
                                     : contents->dit;
}

/* Returns a noun for the contents of weight files; NULL if they hold no component that is known. */
static const char *noun_of(const ith_contents *contents)
{
    return contents->lora     ? "a LoRA"
           : contents->dit    ? "a transformer"
           : contents->vae    ? "an autoencoder"
           : contents->text   ? "a text encoder"
           : contents->vision ? "an image encoder"
                              : NULL;
}

/* Checks that weight files hold a component that is built. */
static ith_status check_contents(ith_context *context, const char *path, ith_part part, const ith_contents *contents)
{
    if (has_part(contents, part)) {
        if (is_transformer(part) && contents->refusal)
            return ith_fail(context, ITH_ERR_UNSUPPORTED,
                            "%s is of %s, which is not supported: " ITH_KINDS_SUPPORTED " are", path,
                            contents->refusal);
        return ITH_OK;
    }
    const char *noun = noun_of(contents);
    if (!noun && !contents->refusal)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: %s must be %s of Wan; its tensors are of no component that is known", path,
                        parts[part].member, parts[part].noun);
    return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: %s must be %s of Wan; it holds %s%s", path, parts[part].member,
                    parts[part].noun, noun ? noun : "a part of ", noun ? "" : contents->refusal);
}

/* Sets the source of a component to the weight files to which `path` belongs. */
static ith_status take_file(ith_context *context, const char *path, ith_part part, const ith_contents *contents,
                            ith_sources *sources)
{
    ith_source *out = &sources->parts[part];
    ith_status status = check_contents(context, path, part, contents);
    const char *slash = strrchr(path, '/');
    if (!status)
        status = ith_weight_series(context, path, &out->paths, &out->count);
    if (!status &&
        !(out->config = slash ? ith_format(context, "%.*s", (int)(slash - path), path) : ith_strdup(context, ".")))
        status = ITH_ERR_MEMORY;
    out->in_level = contents->in_level;
    sources->needs_vision |= is_transformer(part) && contents->needs_vision;
    return status;
}

/* Chooses the weight file of a folder: the first that has a usual name of diffusers or transformers, or else the only
 * one. */
static ith_status file_of_folder(ith_context *context, const char *folder, ith_part part, char **out)
{
    static const char *const usual[] = {"diffusion_pytorch_model.safetensors.index.json",
                                        "diffusion_pytorch_model.safetensors", "model.safetensors",
                                        "model.safetensors.index.json"};
    for (int i = 0; i < ITH_COUNT(usual); i++)
        if (ith_has_file(context, folder, usual[i]))
            return (*out = ith_format(context, "%s/%s", folder, usual[i])) ? ITH_OK : ITH_ERR_MEMORY;
    ith_weight_list list;
    ith_status status = ith_weight_list_read(context, folder, 0, &list);
    if (!status && list.count == 1)
        status = (*out = ith_strdup(context, list.paths[0])) ? ITH_OK : ITH_ERR_MEMORY;
    else if (!status && list.count)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "%s holds %lld weight files, %s and others: name one", folder,
                          (long long)list.count, list.paths[0]);
    else if (!status && list.pickle)
        status = refuse_pickle(context, list.pickle, part);
    else if (!status)
        status = ith_fail(context, ITH_ERR_IO, "%s holds no weight files (.safetensors or .gguf)", folder);
    ith_weight_list_free(context, &list);
    return status;
}

/* Sets *out to the weight file that a path means for a component: the file itself, or the file of a folder, which may
 * be a checkpoint in the layout of diffusers. */
static ith_status file_of_path(ith_context *context, const char *path, ith_part part, char **out)
{
    if (!ith_is_folder(path))
        return (*out = ith_strdup(context, path)) ? ITH_OK : ITH_ERR_MEMORY;
    char *within = ith_format(context, "%s/%s", path, ith_part_name(part));
    ith_status status = within ? ITH_OK : ITH_ERR_MEMORY;
    if (!status)
        status =
            file_of_folder(context, is_checkpoint(context, path) && ith_is_folder(within) ? within : path, part, out);
    ith_free(context, within);
    return status;
}

/* Sets the source of a component to a file or a folder that the caller has named. path NULL: leaves the source
 * unchanged. */
static ith_status take_named(ith_context *context, const char *path, ith_part part, ith_sources *out)
{
    ith_contents contents = {0};
    char *file = NULL;
    if (!path)
        return ITH_OK;
    if (ith_is_pickle(path))
        return refuse_pickle(context, path, part);
    ith_status status = file_of_path(context, path, part, &file);
    if (!status)
        status = look_into(context, file, &contents);
    if (!status)
        status = take_file(context, file, part, &contents, out);
    ith_free(context, file);
    return status;
}

/* ---- A folder without model_index.json ------------------------------------------------------------------------- */

/* The weight files of a folder that hold a component. */
typedef struct candidates {
    const ith_weight_list *list;
    const ith_contents *contents; /* [list->count] */
} candidates;

/* Returns the number of files that hold a component. noise: of a transformer, by the name of its file
 * (ith_noise_of_name); 0: any. *first and *second: the indices of the first two files. */
static int find_candidates(const candidates *c, ith_part part, int noise, int64_t *first, int64_t *second)
{
    int count = 0;
    for (int64_t i = 0; i < c->list->count; i++)
        if (has_part(&c->contents[i], part) && (!noise || ith_noise_of_name(c->list->paths[i]) == noise)) {
            *(count ? second : first) = i;
            count++;
        }
    return count;
}

/* If a component has no source: sets it to the only file of the folder that holds the component. */
static ith_status take_found(ith_context *context, const char *folder, const candidates *c, ith_part part, int noise,
                             ith_sources *out)
{
    int64_t first = 0, second = 0;
    if (has_source(&out->parts[part]))
        return ITH_OK;
    const int count = find_candidates(c, part, noise, &first, &second);
    if (count == 1)
        return take_file(context, c->list->paths[first], part, &c->contents[first], out);
    if (count)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s holds %d files with %s, %s and %s: the option %s must name one",
                        folder, count, parts[part].noun, c->list->paths[first], c->list->paths[second],
                        parts[part].member);
    if (c->list->pickle)
        return refuse_pickle(context, c->list->pickle, part);
    return ith_fail(context, ITH_ERR_IO,
                    "%s holds no model_index.json and no file with %s: the option %s must name one, such as %s", folder,
                    parts[part].noun, parts[part].member, parts[part].published);
}

/* Refuses a single transformer if its name, or the checkpoint at `path`, shows that its model has two. */
static ith_status check_only(ith_context *context, const char *path)
{
    if (is_checkpoint(context, path) && ith_has_file(context, path, ith_part_name(ITH_PART_DIT_2)))
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s has two experts: name both, with dit_high and dit_low", path);
    if (!ith_is_expert_by_name(path))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "%s is by its name one of two experts: name both, with dit_high and dit_low", path);
}

/* Sets the sources of the components that have none to files of a folder. */
static ith_status take_folder(ith_context *context, const char *folder, const candidates *c, ith_sources *out)
{
    int64_t first = 0, second = 0;
    const bool two = find_candidates(c, ITH_PART_DIT, 1, &first, &second) == 1 &&
                     find_candidates(c, ITH_PART_DIT, -1, &first, &second) == 1;
    ith_status status = ITH_OK;
    if (!out->experts) {
        out->experts = two ? 2 : 1;
        status = take_found(context, folder, c, ITH_PART_DIT, two, out);
        if (!status && two)
            status = take_found(context, folder, c, ITH_PART_DIT_2, -1, out);
        else if (!status)
            status = check_only(context, ith_source_path(out, ITH_PART_DIT));
    }
    if (!status)
        status = take_found(context, folder, c, ITH_PART_VAE, 0, out);
    if (!status)
        status = take_found(context, folder, c, ITH_PART_TEXT, 0, out);
    return status || !out->needs_vision ? status : take_found(context, folder, c, ITH_PART_VISION, 0, out);
}

/* Refuses a folder without model_index.json if a folder above or below it has one, and is therefore a checkpoint. Its
 * weight files alone would make a model that lacks the fields of its configurations. */
static ith_status refuse_for(ith_context *context, const char *folder, const char *checkpoint)
{
    return ith_fail(context, ITH_ERR_IO, "%s holds no model_index.json, and %s does: name that folder", folder,
                    checkpoint);
}

/* Says why a folder holds no whole model: it may be a component's folder in a checkpoint. */
static ith_status explain_folder(ith_context *context, const char *folder, ith_status status)
{
    char up[PATH_MAX], above[PATH_MAX];
    const int length = snprintf(up, sizeof up, "%s/..", folder);
    const bool inside = length < PATH_MAX && ith_has_file(context, up, "model_index.json") && realpath(up, above);
    return inside && status != ITH_ERR_MEMORY ? refuse_for(context, folder, above) : status;
}

/* Whether all components but the transformers have a source. */
static bool has_others(const ith_sources *sources)
{
    return has_source(&sources->parts[ITH_PART_VAE]) && has_source(&sources->parts[ITH_PART_TEXT]) &&
           (!sources->needs_vision || has_source(&sources->parts[ITH_PART_VISION]));
}

/* Recognises the weight files of a folder, and sets the sources of the components that have none to them. */
static ith_status search_folder(ith_context *context, const char *folder, ith_sources *out)
{
    ith_weight_list list;
    ith_contents *contents = NULL;
    const bool whole = out->experts && has_others(out);
    ith_status status = ith_weight_list_read(context, folder, FOLDER_DEPTH, &list);
    if (!status && list.checkpoint && !whole)
        status = refuse_for(context, folder, list.checkpoint);
    if (!status && !(contents = ith_alloc_zero(context, list.count, sizeof *contents, "a list of weight files")))
        status = ITH_ERR_MEMORY;
    for (int64_t i = 0; i < list.count && !status; i++)
        status = look_into(context, list.paths[i], &contents[i]);
    if (!status) {
        status = take_folder(context, folder, &(candidates){&list, contents}, out);
        status = status ? explain_folder(context, folder, status) : ITH_OK;
    }
    ith_free(context, contents);
    ith_weight_list_free(context, &list);
    return status;
}

/* ---- The whole model ------------------------------------------------------------------------------------------- */

/* Refuses files of the experts whose names say that they are swapped, or that both are for one noise. */
static ith_status check_experts(ith_context *context, const char *high, const char *low)
{
    const bool high_is_low = ith_noise_of_name(high) == -1, low_is_high = ith_noise_of_name(low) == 1;
    if (high_is_low && low_is_high)
        return ith_fail(context, ITH_ERR_ARGUMENT, "dit_high is %s, and dit_low is %s: by their names they are swapped",
                        high, low);
    if (high_is_low || low_is_high)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "dit_high is %s, and dit_low is %s: by their names both are for %s noise", high, low,
                        high_is_low ? "low" : "high");
    return ITH_OK;
}

/* Checks that no member that is given is an empty name. */
static ith_status check_empty(ith_context *context, const ith_model_files *files)
{
    const struct {
        const char *member, *name;
    } all[] = {{"folder", files->folder},       {"dit", files->dit},         {"dit_high", files->dit_high},
               {"dit_low", files->dit_low},     {"vae", files->vae},         {"text_encoder", files->text_encoder},
               {"tokenizer", files->tokenizer}, {"variant", files->variant}, {"image_encoder", files->image_encoder}};
    for (int i = 0; i < ITH_COUNT(all); i++)
        if (all[i].name && !*all[i].name)
            return ith_fail(context, ITH_ERR_ARGUMENT, "%s is an empty name: leave it out, or give it a name",
                            all[i].member);
    return ITH_OK;
}

/* Checks that the members name a transformer in one way, and that the names of files agree with the experts. */
static ith_status check_named(ith_context *context, const ith_model_files *files)
{
    ith_status status = check_empty(context, files);
    if (status)
        return status;
    if (files->dit && (files->dit_high || files->dit_low))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "dit names the only transformer of a model, dit_high and dit_low the two experts of another: "
                        "leave dit out, or the two");
    if (!files->dit_high != !files->dit_low)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s is missing: a model with two experts needs dit_high and dit_low",
                        files->dit_high ? "dit_low" : "dit_high");
    status = files->dit_high ? check_experts(context, files->dit_high, files->dit_low) : ITH_OK;
    if (status)
        return status;
    if (files->variant && !files->folder)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "variant is '%s': it chooses among the files of a folder, and none is named", files->variant);
    status = files->dit ? check_only(context, files->dit) : ITH_OK;
    if (status)
        return status;
    if (files->folder || files->dit || files->dit_high)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "no model is named: folder, dit, or dit_high and dit_low are needed");
}

/* Whether a path has the form of a repository's name on Hugging Face, OWNER/NAME, and OWNER is no folder. */
static bool is_repository(const char *path)
{
    const char *slash = strchr(path, '/');
    char owner[NAME_MAX + 1];
    if (!slash || slash == path || !slash[1] || strchr(slash + 1, '/') || slash - path > NAME_MAX)
        return false;
    snprintf(owner, sizeof owner, "%.*s", (int)(slash - path), path);
    return !ith_is_folder(owner);
}

/* Checks that the path of a model is a folder, here or lent. */
static ith_status check_folder(ith_context *context, const char *path)
{
    struct stat info;
    if (ith_is_folder(path) || ith_has_file(context, path, "model_index.json"))
        return ITH_OK;
    if (stat(path, &info))
        return ith_fail(context, ITH_ERR_IO, "cannot open %s for its model_index.json: %s%s", path, strerror(errno),
                        is_repository(path) ? "; a repository of Hugging Face must be downloaded first" : "");
    return ith_fail(context, ITH_ERR_IO,
                    "%s is a file, and a model is a folder with model_index.json or weight files; dit, vae and "
                    "text_encoder name files",
                    path);
}

/* Checks that a component has files of the variant. */
static ith_status check_variant(ith_context *context, const ith_sources *sources)
{
    for (ith_part part = 0; part < ITH_PARTS; part++) {
        char *path = NULL;
        ith_status status = ITH_OK;
        if (sources->parts[part].folder)
            status = find_variant(context, sources->parts[part].folder, sources->variant, part, &path);
        const bool found = path;
        ith_free(context, path);
        if (status || found)
            return status;
    }
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "no component of %s has files of the variant '%s', such as transformer/%s.%s.safetensors",
                    sources->folder, sources->variant, layouts[ITH_PART_DIT].stem, sources->variant);
}

/* Refuses files without a component that the transformer's file needs. */
static ith_status refuse_without(ith_context *context, const ith_sources *sources, ith_part part)
{
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s is needed besides %s, such as %s", parts[part].member,
                    ith_source_path(sources, ITH_PART_DIT), parts[part].published);
}

/* Sets the sources of the components that have none to the components of a diffusers checkpoint. */
static ith_status take_checkpoint(ith_context *context, const char *folder, const char *variant, ith_sources *out)
{
    if (out->needs_vision && !has_source(&out->parts[ITH_PART_VISION]) &&
        !ith_has_file(context, folder, "image_encoder/config.json"))
        return refuse_without(context, out, ITH_PART_VISION);
    if (!(out->folder = ith_strdup(context, folder)) || (variant && !(out->variant = ith_strdup(context, variant))))
        return ITH_ERR_MEMORY;
    for (ith_part part = 0; part < ITH_PARTS; part++)
        if (!has_source(&out->parts[part]) &&
            !(out->parts[part].folder = ith_format(context, "%s/%s", folder, ith_part_name(part))))
            return ITH_ERR_MEMORY;
    return variant ? check_variant(context, out) : ITH_OK;
}

/* Sets the sources of the components that have none to the transformer's file, which may be an all-in-one file. */
static ith_status take_rest(ith_context *context, ith_sources *out)
{
    ith_contents contents = {0};
    const char *path = ith_source_path(out, ITH_PART_DIT);
    ith_status status = ITH_OK;
    if (has_others(out))
        return ITH_OK;
    status = look_into(context, path, &contents);
    for (ith_part part = 0; part < ITH_PARTS && !status; part++) {
        if (has_source(&out->parts[part]) || part == ITH_PART_DIT_2 || (part == ITH_PART_VISION && !out->needs_vision))
            continue;
        if (!has_part(&contents, part))
            return refuse_without(context, out, part);
        status = take_file(context, path, part, &contents, out);
    }
    return status;
}

/* Looks for the tokenizer in the model's folder and beside the text encoder. */
static ith_status search_tokenizer(ith_context *context, const ith_model_files *files, ith_sources *out)
{
    const char *const folders[] = {files->folder, out->parts[ITH_PART_TEXT].config};
    static const char *const places[] = {ITH_TOKENIZER_FOLDER, ITH_TOKENIZER_ORIGINAL_FOLDER, ".",
                                         "../" ITH_TOKENIZER_FOLDER};
    for (int place = 0; place < ITH_COUNT(places); place++)
        for (int i = 0; i < 2; i++) {
            if (!folders[i])
                continue;
            char *path = ith_format(context, "%s/%s", folders[i], places[place]);
            if (!path)
                return ITH_ERR_MEMORY;
            if (ith_tokenizer_is_in(context, path)) {
                out->tokenizer = path;
                return ITH_OK;
            }
            ith_free(context, path);
        }
    return ITH_OK;
}

/* Finds the tokenizer: where the caller says, in the checkpoint, or where search_tokenizer finds it. NULL if only the
 * named files of the text encoder can hold it. */
static ith_status find_tokenizer(ith_context *context, const ith_model_files *files, ith_sources *out)
{
    out->tokenizer_named = files->tokenizer;
    if (files->tokenizer)
        return ith_tokenizer_find(context, files->tokenizer, &out->tokenizer);
    if (out->folder) {
        char *path = ith_format(context, "%s/" ITH_TOKENIZER_FOLDER, out->folder);
        if (!path)
            return ITH_ERR_MEMORY;
        if (ith_tokenizer_is_in(context, path) || !out->parts[ITH_PART_TEXT].paths) {
            out->tokenizer = path;
            return ITH_OK;
        }
        ith_free(context, path);
    }
    return search_tokenizer(context, files, out);
}

ith_status ith_sources_find(ith_context *context, const ith_model_files *files, ith_sources *out)
{
    *out = (ith_sources){0};
    ith_status status = check_named(context, files);
    if (!status)
        status = take_named(context, files->dit_high ? files->dit_high : files->dit, ITH_PART_DIT, out);
    if (!status)
        status = take_named(context, files->dit_low, ITH_PART_DIT_2, out);
    out->experts = files->dit_high ? 2 : files->dit ? 1 : 0;
    if (!status)
        status = take_named(context, files->vae, ITH_PART_VAE, out);
    if (!status)
        status = take_named(context, files->text_encoder, ITH_PART_TEXT, out);
    if (!status)
        status = take_named(context, files->image_encoder, ITH_PART_VISION, out);
    if (status)
        return status;
    if (files->folder)
        status = check_folder(context, files->folder);
    if (!status && !files->folder)
        status = take_rest(context, out);
    else if (!status && is_checkpoint(context, files->folder))
        status = take_checkpoint(context, files->folder, files->variant, out);
    else if (!status && files->variant)
        status =
            ith_fail(context, ITH_ERR_ARGUMENT, "variant is '%s', and %s is no checkpoint in the layout of diffusers",
                     files->variant, files->folder);
    else if (!status)
        status = search_folder(context, files->folder, out);
    return status ? status : find_tokenizer(context, files, out);
}
