/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/probe_models.h"

#include "files/json_load.h"
#include "support/memory_file.h"
#include "wan/lora/lora.h"
#include "wan/run/saved_run.h"
#include "wan/text/piece_model.h"
#include "wan/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WIDTH 4
#define TABLES 6

static void probe_require(int holds)
{
    if (!holds)
        abort();
}

/* Checks that a failure has a sentence of one line that names the file. Returns status. */
static ith_status named(ith_context *ctx, const char *path, ith_status status)
{
    const char *sentence = ith_context_error(ctx);
    probe_require(!status || (strstr(sentence, path) && !strchr(sentence, '\n')));
    return status;
}

/* Reads a whole file into memory, which the caller frees. */
static char *read_whole(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    probe_require(file != NULL);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*bytes + 1);
    probe_require(data && fread(data, 1, *bytes, file) == *bytes);
    fclose(file);
    data[*bytes] = '\0';
    return data;
}

/* ---- Tokenizers -------------------------------------------------------------------------------------------------- */

static ith_status make_from_json(ith_context *ctx, const char *path, const char *text, size_t bytes,
                                 ith_tokenizer **out)
{
    ith_piece_model made = {.data = NULL};
    json_t *root = NULL;
    ith_status status = ith_json_load(ctx, path, text, (int64_t)bytes, &root);
    if (!status)
        status = ith_piece_model_from_json(ctx, path, root, &made);
    if (!status)
        status = ith_tokenizer_make(ctx, path, made.data, made.bytes, out);
    json_decref(root);
    ith_free(ctx, made.data);
    return status;
}

static ith_status make_from_gguf(ith_context *ctx, const char *path, ith_tokenizer **out)
{
    ith_tensor_file *file = NULL;
    ith_piece_model made = {.data = NULL};
    ith_status status = ith_tensor_file_open(ctx, path, &file);
    if (!status)
        status = ith_piece_model_from_gguf(ctx, path, file, &made);
    if (!status)
        status = ith_tokenizer_make(ctx, path, made.data, made.bytes, out);
    ith_free(ctx, made.data);
    ith_tensor_file_close(&file);
    return status;
}

ith_status probe_tokenizer(ith_context *ctx, const char *path)
{
    size_t bytes;
    char *text = read_whole(path, &bytes);
    ith_tokenizer *tokenizer = NULL;
    int32_t ids[ITH_TEXT_LEN];
    int64_t count = 0;
    ith_status status = text[0] == '{'              ? make_from_json(ctx, path, text, bytes, &tokenizer)
                        : !strncmp(text, "GGUF", 4) ? make_from_gguf(ctx, path, &tokenizer)
                                                    : ith_tokenizer_load(ctx, path, &tokenizer);
    free(text);
    named(ctx, path, status);
    probe_require(!status == (tokenizer != NULL));
    if (!status) {
        probe_require(!ith_tokenizer_encode(ctx, tokenizer, "a red circle, \xc3\xa9\xe2\x82\xac", ids, &count));
        probe_require(count >= 1 && count <= ITH_TEXT_LEN);
        for (int64_t i = 0; i < count; i++)
            probe_require(ids[i] >= 0 && ids[i] < ith_tokenizer_vocab(tokenizer));
    }
    ith_tokenizer_free(ctx, &tokenizer);
    return status;
}

/* ---- LoRA -------------------------------------------------------------------------------------------------------- */

/* Takes and merges all changes of one layer. */
static ith_status take_layer(ith_context *ctx, ith_lora *lora, const char *module)
{
    ith_linear_addition additions[ITH_LORA_ADDITIONS_MAX];
    int64_t count = 0;
    float row[WIDTH] = {0}, bias[WIDTH] = {0};
    char name[64];
    const ith_lora_target matrix = {module, 0, WIDTH, WIDTH};
    ith_status status = ith_lora_matrix(ctx, lora, &matrix, true, additions, &count);
    for (int64_t r = 0; r < WIDTH && !status; r++)
        status = ith_lora_merge_row(ctx, additions, count, r, WIDTH, row);
    snprintf(name, sizeof name, "%s.bias", module);
    return status ? status : ith_lora_floats(ctx, lora, name, WIDTH, true, bias);
}

ith_status probe_lora(ith_context *ctx, const char *path)
{
    static const char *const modules[] = {"blocks.0.attn1.to_q", "blocks.0.attn2.to_out.0", "blocks.0.ffn.net.0.proj",
                                          "proj_out"};
    const ith_lora_source source = {.path = path, .strength = 0.5};
    ith_lora *lora = NULL;
    uint64_t hash;
    float table[TABLES * WIDTH] = {0};
    ith_status status = ith_lora_open(ctx, &source, 1, &lora);
    probe_require(!status == (lora != NULL));
    for (size_t i = 0; i < sizeof modules / sizeof *modules && !status; i++)
        status = take_layer(ctx, lora, modules[i]);
    if (!status)
        status = ith_lora_floats(ctx, lora, "blocks.0.scale_shift_table", TABLES * WIDTH, true, table);
    if (!status)
        status = ith_lora_hash(ctx, lora, &hash);
    if (!status)
        status = ith_lora_check_all_taken(ctx, lora);
    named(ctx, path, status);
    ith_lora_close(&lora);
    return status;
}

/* ---- Saved runs -------------------------------------------------------------------------------------------------- */

static ith_status use_saved_run(ith_context *ctx, const char *path)
{
    const ith_latent_size size = {2, 1, 2, 2};
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    ith_saved_run *saved = NULL;
    uint64_t hash = 0;
    float numbers[8];
    ith_status status = ith_saved_run_open(ctx, path, &saved);
    probe_require(!status == (saved != NULL));
    if (!status)
        status = ith_saved_run_take(ctx, saved, &options, &attention);
    for (int64_t i = 0; i < 2 && !status; i++)
        status = ith_saved_run_read(ctx, saved, options.solver, i, &size, numbers, &hash);
    if (!status)
        status = ith_saved_run_check_hash(ctx, saved, hash);
    named(ctx, path, status);
    ith_saved_run_close(ctx, &saved);
    return status;
}

ith_status probe_saved_run(ith_context *ctx, const char *path)
{
    size_t bytes;
    char *text = read_whole(path, &bytes);
    const size_t room = sizeof PROBE_VERSION - 1;
    memory_file file = memory_file_create();
    for (size_t i = 0; i + room <= bytes && i < 256; i++)
        if (!memcmp(text + i, PROBE_VERSION, room)) {
            char version[sizeof PROBE_VERSION];
            memset(version, ' ', sizeof version);
            const int used = snprintf(version, sizeof version, "\"%s\"", ITH_SAVED_VERSION);
            version[used] = ' '; /* instead of the end of the string */
            memcpy(text + i, version, room);
        }
    memory_file_fill(&file, text, bytes);
    ith_status status = use_saved_run(ctx, file.path);
    close(file.file);
    free(text);
    return status;
}
