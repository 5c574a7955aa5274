/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises components by the names of their tensors (recognise.h). */
#include "recognise.h"

#include "../../base/count.h"
#include "../../base/plain_text.h"
#include "../names/module_names.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Parts of names that only models of other kinds have. */
static const struct {
    const char *part, *kind;
} refusals[] = {
    {"vace_", "a VACE model"},
    {"control_adapter.", "a Fun-Camera model"},
    {"ref_conv.", "a Fun-Control model"},
    {"casual_audio_encoder.", "a speech-to-video model (S2V)"},
    {"face_adapter.", "an Animate model"},
    {"audio_proj.audio_proj_glob", "HuMo, a model with audio"},
    {"audio_proj.", "MultiTalk or another model with audio"},
    {"to_gate_compress.", "a model with sparse attention (VSA)"},
};

/* Lowers *refusal to the index of the first refusal whose part is in a name. */
static void note_refusal(const char *name, int *refusal)
{
    for (int i = 0; i < *refusal; i++)
        if (strstr(name, refusals[i].part))
            *refusal = i;
}

static bool is_one_of(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* The names by which the components are recognised, in all forms, without prefixes. */
static const char *const dit_names[] = {"head.modulation", "condition_embedder.time_proj.weight"};
static const char *const vae_names[] = {"decoder.middle.0.residual.0.gamma", "decoder.mid_block.resnets.0.norm1.gamma"};
static const char *const text_names[] = {"token_embedding.weight", "shared.weight", "encoder.embed_tokens.weight",
                                         "token_embd.weight"};
static const char *const vision_names[] = {"vision_model.embeddings.class_embedding", "embeddings.class_embedding",
                                           "visual.cls_embedding", "cls_embedding"};
/* The name of a tensor that only transformers with rows of an image encoder have. */
static const char *const image_names[] = {"img_emb.proj.0.weight", "condition_embedder.image_embedder.norm1.weight"};
#define HAS(list, name) is_one_of(name, list, ITH_COUNT(list))

/* Lowers *in_level to the number of parts in the decoder's first level, whose last part is an upsampling layer. */
static void note_level(const char *name, int64_t *in_level)
{
    const char *rest = ith_name_after(name, "decoder.upsamples.");
    int number;
    if (rest && (rest = ith_name_number(rest, &number)) && ith_name_after(rest, "resample.") && number < *in_level)
        *in_level = number + 1;
}

ith_contents ith_recognise(const ith_store *raw)
{
    ith_contents found = {.in_level = INT32_MAX};
    int refusal = ITH_COUNT(refusals);
    const ith_tensor *tensor;
    for (int64_t i = 0; (tensor = ith_store_at(raw, i)); i++) {
        const char *name = ith_dit_name_bare(tensor->name);
        const char *vae = ith_name_after(tensor->name, "vae.");
        const char *text = ith_name_after(tensor->name, "text_encoders.umt5xxl.transformer.");
        vae = vae ? vae : tensor->name, text = text ? text : tensor->name;
        found.dit |= HAS(dit_names, name);
        found.vae |= HAS(vae_names, vae);
        found.text |= HAS(text_names, text);
        found.vision |= HAS(vision_names, tensor->name);
        found.needs_vision |= HAS(image_names, name);
        found.lora |= strstr(name, ".lora_") || strstr(name, ".diff_b");
        note_refusal(name, &refusal);
        note_level(vae, &found.in_level);
    }
    found.refusal = refusal < ITH_COUNT(refusals) ? refusals[refusal].kind : NULL;
    return found;
}

/* Whether a word ends between two characters of a name: one is no letter, or a capital follows a small letter. */
static bool is_word_end(char before, char after)
{
    const bool small_before = ith_is_small_letter(before), capital_after = ith_is_capital(after);
    const bool letters = (small_before || ith_is_capital(before)) && (capital_after || ith_is_small_letter(after));
    return !letters || (small_before && capital_after);
}

/* Whether a word begins or ends before byte `at` of a name. No letter follows the name's end. */
static bool is_edge(const char *name, size_t at)
{
    return at == 0 || is_word_end(name[at - 1], name[at]);
}

/* Whether a name has the word, in any case, alone or before "noise": "LowNoise", "lownoise" and "low_v2" have "low";
 * "flow" and "lowpoly" have not. */
static bool has_word(const char *name, const char *word)
{
    for (size_t i = 0; name[i]; i++) {
        const size_t end = i + strlen(word);
        if (ith_begins_with(name + i, word) && is_edge(name, i) &&
            (is_edge(name, end) || ith_begins_with(name + end, "noise")))
            return true;
    }
    return false;
}

static int noise_of(const char *name)
{
    const bool high = has_word(name, "high"), low = has_word(name, "low");
    return high == low ? 0 : high ? 1 : -1;
}

bool ith_is_expert_by_name(const char *path)
{
    return ith_noise_of_name(path) && (ith_has_part(path, "noise") || ith_has_part(path, "a14b"));
}

int ith_noise_of_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *parent = slash;
    const int noise = noise_of(slash ? slash + 1 : path);
    char folder[NAME_MAX + 1];
    if (noise || !slash)
        return noise;
    while (parent > path && parent[-1] != '/')
        parent--;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - parent), parent);
    return ith_has_part(folder, "noise") ? noise_of(folder) : 0;
}
