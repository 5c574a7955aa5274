/* SPDX-License-Identifier: Apache-2.0 */
/* The options that name the files of a model (model_options.h). */
#include "model_options.h"

#include "../cli.h"
#include "../support/text_value.h"

#include <string.h>

#define AT(member) offsetof(ith_model_files, member)
static const ith_option rows[] = {
    {"model", "DIR", "Folder of a model: in the layout of diffusers, or with weight files that are recognised",
     ITH_OPTION_TEXT, .offset = AT(folder), .letter = 'm'},
    {"dit", "FILE", "Weights of the transformer: .safetensors or .gguf; for shards, the first one or the index",
     ITH_OPTION_TEXT, .offset = AT(dit)},
    {"dit-high", "FILE", "Weights of the high-noise expert, for models with two, such as A14B", ITH_OPTION_TEXT,
     .offset = AT(dit_high)},
    {"dit-low", "FILE", "Weights of the low-noise expert", ITH_OPTION_TEXT, .offset = AT(dit_low)},
    {"vae", "FILE", "Weights of the autoencoder", ITH_OPTION_TEXT, .offset = AT(vae)},
    {"text-encoder", "FILE", "Weights of the umT5 text encoder", ITH_OPTION_TEXT, .offset = AT(text_encoder)},
    {"image-encoder", "FILE", "Weights of the image encoder (CLIP), for I2V and FLF2V of Wan 2.1", ITH_OPTION_TEXT,
     .offset = AT(image_encoder)},
    {"tokenizer", "FILE", "spiece.model or tokenizer.json, or its folder (found in or beside the other files)",
     ITH_OPTION_TEXT, .offset = AT(tokenizer)},
    {"variant", "NAME", "Take the files NAME.VARIANT.safetensors of --model where they exist, for example fp16",
     ITH_OPTION_TEXT, .offset = AT(variant)},
};
#undef AT

int ith_model_add_options(ith_option *table, int count, size_t offset)
{
    return ith_options_append(table, count, rows, sizeof rows / sizeof *rows, offset);
}

bool ith_model_is_named(const ith_model_files *files)
{
    return files->folder || files->dit || files->dit_high || files->dit_low;
}

int ith_model_check_named(const ith_model_files *files, bool needed, const char *command)
{
    needed |= files->vae || files->text_encoder || files->image_encoder || files->tokenizer || files->variant;
    if (!needed || ith_model_is_named(files))
        return ITH_EXIT_DONE;
    return ith_cli_usage(command, ITH_MODEL_NEEDED);
}

const char *ith_model_single_file(const ith_model_files *files, int i, const char **path)
{
    const struct {
        const char *option, *path;
    } all[ITH_MODEL_SINGLE_FILES] = {{"--dit", files->dit},
                                     {"--dit-high", files->dit_high},
                                     {"--dit-low", files->dit_low},
                                     {"--vae", files->vae},
                                     {"--text-encoder", files->text_encoder},
                                     {"--tokenizer", files->tokenizer},
                                     {"--image-encoder", files->image_encoder}};
    *path = all[i].path;
    return all[i].option;
}

void ith_model_put_stand_ins(const ith_model_info *model, ith_generate_options *options)
{
    static const uint8_t pixel[3];
    static const ith_image image = {.struct_size = sizeof image, .rgb = pixel, .height = 1, .width = 1};
    options->image = model->most_images ? &image : NULL;
    options->last_image = model->least_images > 1 ? &image : NULL;
}

void ith_model_print_options(const ith_model_files *files, FILE *to)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *value;
        memcpy(&value, (const char *)files + rows[i].offset, sizeof value);
        if (value)
            ith_text_print_option(to, rows[i].name, value);
    }
}
