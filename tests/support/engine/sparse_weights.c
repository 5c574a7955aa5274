/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/sparse_weights.h"

#include "support/engine/gguf_write.h"
#include "support/folder_fixture.h"
#include "wan/names/module_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes the folders of a path in the test's folder. */
static void make_folders(const char *path)
{
    char name[256];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
        mkdir(temporary_path(folder, name), 0700);
    }
}

void sparse_write_text(const char *name, const char *text)
{
    make_folders(name);
    temporary_write(temporary_path(folder, name), text, strlen(text));
}

static int64_t elements(const json_t *shape)
{
    int64_t count = 1;
    size_t index;
    const json_t *size;
    json_array_foreach(shape, index, size)
    {
        count *= json_integer_value(size);
    }
    return count;
}

/* Adds a tensor of `bytes` bytes to a header. *end: the bytes of the tensors before it. */
static void add_raw(json_t *header, const char *name, const char *type, int64_t bytes, json_t *shape, int64_t *end)
{
    json_object_set_new(header, name,
                        json_pack("{s:s, s:O, s:[I, I]}", "dtype", type, "shape", shape, "data_offsets",
                                  (json_int_t)*end, (json_int_t)(*end + bytes)));
    *end += bytes;
}

/* Adds a matrix or a vector of q, k and v as three tensors, as transformers has them. */
static void add_three(json_t *header, const sparse_weights *w, const char *joint, json_t *shape, int64_t *end)
{
    const char *at = strstr(joint, "qkv_proj");
    json_t *third = json_deep_copy(shape);
    json_array_set_new(third, 0, json_integer(json_integer_value(json_array_get(shape, 0)) / 3));
    for (const char *part = "qkv"; *part; part++) {
        char name[300];
        snprintf(name, sizeof name, "%.*s%c%s", (int)(at - joint), joint, *part, at + strlen("qkv"));
        add_raw(header, name, w->type, elements(third) * 2, third, end);
    }
    json_decref(third);
}

/* Adds a tensor of the model to a header. */
static void add(json_t *header, const sparse_weights *w, const char *name, json_t *shape, int64_t *end)
{
    char space[ITH_STORE_NAME_BYTES], prefixed[300];
    static const int64_t in_level = 4;
    if (w->form == SPARSE_DIFFUSERS)
        name = !strncmp(w->model, "vae", 3)  ? ith_vae_name(&in_level, name, space)
               : !strcmp(w->model, "umt5")   ? ith_text_name(NULL, name, space)
               : !strcmp(w->model, "vision") ? ith_vision_name(NULL, name, space)
                                             : ith_dit_name(NULL, name, space);
    if (w->form == SPARSE_DIFFUSERS && strstr(name, "qkv_proj")) {
        add_three(header, w, name, shape, end);
        return;
    }
    snprintf(prefixed, sizeof prefixed, "%s%s", w->form == SPARSE_PREFIXED ? "model.diffusion_model." : "", name);
    add_raw(header, prefixed, w->type, elements(shape) * (strcmp(w->type, "F32") ? 2 : 4), shape, end);
}

/* Adds a matrix in fp8, and its scale if it has one. */
static void add_scaled(json_t *header, const char *name, json_t *shape, bool has_scale, int64_t *end)
{
    char scale[300];
    json_t *one = json_array();
    add_raw(header, name, "F8_E4M3", elements(shape), shape, end);
    snprintf(scale, sizeof scale, "%.*s.scale_weight", (int)(strlen(name) - strlen(".weight")), name);
    if (has_scale)
        add_raw(header, scale, "F32", 4, one, end);
    json_decref(one);
}

static void write_sparse(const char *path, json_t *header, int64_t bytes)
{
    char *text = json_dumps(header, JSON_COMPACT);
    const uint64_t length = strlen(text);
    char *whole = malloc(length + 8);
    memcpy(whole, &length, 8);
    memcpy(whole + 8, text, length);
    make_folders(path);
    temporary_write(temporary_path(folder, path), whole, length + 8);
    temporary_require(truncate(temporary_path(folder, path), (off_t)(length + 8) + bytes) == 0, path);
    free(whole), free(text);
    json_decref(header);
}

/* Writes the file of a shard. The model's tensors go to the shards in turn. */
static void write_shard(const sparse_weights *w, const json_t *published, const char *path, int shard)
{
    json_t *header = json_object(), *shape;
    const char *name;
    int64_t end = 0;
    int number = 0;
    json_object_foreach(json_object_get(published, w->model), name, shape)
    {
        const char *head = strcmp(w->model, "vision") ? "blocks." : "visual.transformer.";
        const size_t number_at = strlen(head);
        const bool repeated = !strncmp(name, head, number_at) && !strncmp(name + number_at, "0.", 2);
        for (int layer = 0; layer < (repeated ? w->layers : 1); layer++) {
            char copy[200];
            snprintf(copy, sizeof copy, "%s%d.%s", head, layer, repeated ? name + number_at + 2 : "");
            if (number++ % w->shards != shard)
                continue;
            if (w->scaled && repeated && json_array_size(shape) == 2)
                add_scaled(header, copy, shape, w->scaled == 1, &end);
            else
                add(header, w, repeated ? copy : name, shape, &end);
        }
    }
    json_t *four = json_pack("[i]", 4);
    if (w->extra && shard == 0)
        add(header, w, w->extra, four, &end);
    json_decref(four);
    if (w->scaled == 1 || w->scaled == 2) {
        json_t *marker = json_pack("[i]", 2);
        add_raw(header, "scaled_fp8", "F8_E4M3", 2, marker, &end);
        json_decref(marker);
    }
    write_sparse(path, header, end);
}

/* The names of umT5's modules in SPARSE_GGUF files. */
static const char *llama_name(const char *name, char space[200])
{
    static const char *const parts[][2] = {{"norm1", "attn_norm"},     {"attn.q", "attn_q"},
                                           {"attn.k", "attn_k"},       {"attn.v", "attn_v"},
                                           {"attn.o", "attn_o"},       {"norm2", "ffn_norm"},
                                           {"ffn.gate.0", "ffn_gate"}, {"ffn.fc1", "ffn_up"},
                                           {"ffn.fc2", "ffn_down"},    {"pos_embedding.embedding", "attn_rel_b"}};
    int layer = 0, end = 0;
    if (sscanf(name, "blocks.%d.%n", &layer, &end) != 1)
        return !strcmp(name, "norm.weight") ? "enc.output_norm.weight" : "token_embd.weight";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const size_t length = strlen(parts[i][0]);
        if (!strncmp(name + end, parts[i][0], length) && !strcmp(name + end + length, ".weight"))
            snprintf(space, 200, "enc.blk.%d.%s.weight", layer, parts[i][1]);
    }
    return space;
}

/* The type of a tensor in a SPARSE_GGUF file. Matrices of layers have the type of the file; if it is Q4_K, the matrix
 * of v and the last matrix of a layer have Q6_K, with more bits. */
static ith_dtype gguf_type(const sparse_weights *w, const char *name, int dims)
{
    ith_dtype type = ITH_F16;
    if (dims == 1 || !strcmp(name, "patch_embedding.weight"))
        return ITH_F32;
    if (dims != 2 || !strncmp(name, "head.", 5) || strstr(name, "embedding.") || strstr(name, "time_projection"))
        return !strcmp(name, "token_embedding.weight") ? ITH_Q8_0 : ITH_F16;
    while (strcmp(ith_dtype_name(type), w->type) != 0)
        temporary_require(type++ < ITH_IQ4_NL, w->type);
    return type == ITH_Q4_K && (strstr(name, ".v.") || strstr(name, "ffn.2.")) ? ITH_Q6_K : type;
}

static void write_gguf(const sparse_weights *w, const json_t *published, const char *path)
{
    enum { MOST = 1400 };
    static ith_tensor tensors[MOST];
    static char names[MOST][200];
    const bool text = !strcmp(w->model, "umt5");
    int64_t count = 0;
    json_t *shape, *size;
    const char *name;
    json_object_foreach(json_object_get(published, w->model), name, shape)
    {
        const bool repeated = !strncmp(name, "blocks.0.", 9);
        for (int layer = 0; layer < (repeated ? w->layers : 1); layer++) {
            ith_tensor *t = &tensors[count];
            char copy[200], space[200];
            size_t d;
            *t = (ith_tensor)ITH_TENSOR_INIT;
            if (repeated)
                snprintf(copy, sizeof copy, "blocks.%d.%s", layer, name + 9);
            else
                snprintf(copy, sizeof copy, "%s", name);
            snprintf(names[count], sizeof names[count], "%s", text ? llama_name(copy, space) : copy);
            t->name = names[count++], t->dims = (int)json_array_size(shape);
            json_array_foreach(shape, d, size)
            {
                t->shape[d] = json_integer_value(size);
            }
            t->dtype = gguf_type(w, copy, t->dims);
            t->bytes = elements(shape) / ith_dtype_run(t->dtype) * ith_dtype_bytes(t->dtype);
            for (; t->dims > 1 && t->shape[0] == 1; t->dims--) /* ggml writes no sizes of 1 at the beginning */
                memmove(t->shape, t->shape + 1, (size_t)(t->dims - 1) * sizeof *t->shape);
        }
    }
    if (w->extra) {
        tensors[count] = (ith_tensor)ITH_TENSOR_INIT;
        tensors[count].name = w->extra, tensors[count].dtype = ITH_F32, tensors[count].dims = 1;
        tensors[count].shape[0] = 4, tensors[count++].bytes = 16;
    }
    make_folders(path);
    gguf_write_tensors(tensors, count, text ? "t5encoder" : "wan", temporary_path(folder, path));
}

void sparse_write_weights(const sparse_weights *w, const json_t *published)
{
    char path[300];
    if (w->form == SPARSE_GGUF) {
        snprintf(path, sizeof path, "%s.gguf", w->name);
        write_gguf(w, published, path);
        return;
    }
    for (int i = 0; i < w->shards; i++) {
        if (w->shards > 1)
            snprintf(path, sizeof path, "%s-%05d-of-%05d.safetensors", w->name, i + 1, w->shards);
        else
            snprintf(path, sizeof path, "%s.safetensors", w->name);
        write_shard(w, published, path, i);
    }
    if (w->shards == 1 || w->form != SPARSE_DIFFUSERS)
        return;
    json_t *map = json_object(), *shape;
    const char *name;
    for (int i = 0; i < w->shards; i++) {
        uint64_t length = 0;
        snprintf(path, sizeof path, "%s-%05d-of-%05d.safetensors", w->name, i + 1, w->shards);
        FILE *file = fopen(temporary_path(folder, path), "rb");
        char *text = NULL;
        temporary_require(file && fread(&length, 8, 1, file) == 1 && (text = malloc(length)) &&
                              fread(text, 1, length, file) == length,
                          path);
        fclose(file);
        json_t *header = json_loadb(text, length, 0, NULL);
        json_object_foreach(header, name, shape)
        {
            json_object_set_new(map, name, json_string(strrchr(path, '/') + 1));
        }
        json_decref(header);
        free(text);
    }
    char *text = json_dumps(map, JSON_COMPACT), *whole = malloc(strlen(text) + 32);
    sprintf(whole, "{\"weight_map\":%s}", text);
    snprintf(path, sizeof path, "%s.safetensors.index.json", w->name);
    sparse_write_text(path, whole);
    free(text), free(whole);
    json_decref(map);
}
