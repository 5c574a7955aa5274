/* SPDX-License-Identifier: Apache-2.0 */
/* Makes SentencePiece models (piece_model.h). */
#include "piece_model.h"

#include "../../base/size.h"
#include "../../files/gguf.h"
#include "../../files/quote.h"

#include <string.h>

#define VARINT_MOST 10 /* bytes of a number */

/* ---- The message ----------------------------------------------------------------------------------------------- */

/* Makes room for more bytes. */
static bool reserve(ith_piece_model *m, int64_t bytes)
{
    if (m->failed || m->bytes + bytes <= m->room)
        return !m->failed;
    const int64_t room = ith_max64(2 * m->room, m->bytes + bytes + 4096);
    char *data = ith_alloc(m->context, room, 1, "a tokenizer");
    if (data && m->bytes)
        memcpy(data, m->data, (size_t)m->bytes);
    ith_free(m->context, m->data);
    m->data = data, m->room = room;
    m->failed = !data;
    return data != NULL;
}

static int varint_bytes(uint64_t value)
{
    int bytes = 1;
    while (value >>= 7)
        bytes++;
    return bytes;
}

static void put_varint(ith_piece_model *m, uint64_t value)
{
    if (!reserve(m, VARINT_MOST))
        return;
    for (; value > 0x7f; value >>= 7)
        m->data[m->bytes++] = (char)(value | 0x80);
    m->data[m->bytes++] = (char)value;
}

/* A field that is a number. */
static void put_number(ith_piece_model *m, int field, uint64_t value)
{
    put_varint(m, (uint64_t)field << 3);
    put_varint(m, value);
}

/* The head of a field of `bytes` bytes, which the caller puts behind it. */
static void put_head(ith_piece_model *m, int field, int64_t bytes)
{
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, (uint64_t)bytes);
}

static void put_bytes(ith_piece_model *m, int field, const void *data, int64_t bytes)
{
    put_head(m, field, bytes);
    if (bytes && reserve(m, bytes)) {
        memcpy(m->data + m->bytes, data, (size_t)bytes);
        m->bytes += bytes;
    }
}

void ith_piece_model_add(ith_piece_model *m, const char *piece, int64_t piece_bytes, float score, ith_piece_type type)
{
    put_head(m, ITH_MODEL_PIECE, 1 + varint_bytes((uint64_t)piece_bytes) + piece_bytes + 5 + 2);
    put_bytes(m, ITH_PIECE_TEXT, piece, piece_bytes);
    put_varint(m, ITH_PIECE_SCORE << 3 | 5);
    if (reserve(m, 4)) {
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        for (int i = 0; i < 4; i++)
            m->data[m->bytes++] = (char)(bits >> 8 * i);
    }
    put_number(m, ITH_PIECE_TYPE, (uint64_t)type);
    m->byte_pieces += type == ITH_PIECE_BYTE;
}

void ith_piece_model_end(ith_piece_model *m, ith_piece_spaces spaces, const void *charsmap, int64_t charsmap_bytes)
{
    static const char name[] = "user_defined";
    const int64_t name_bytes = sizeof name - 1;
    put_head(m, ITH_MODEL_TRAINER, 2 + 3);
    put_number(m, ITH_TRAINER_MODEL_TYPE, ITH_MODEL_TYPE_UNIGRAM);
    put_number(m, ITH_TRAINER_BYTE_FALLBACK, m->byte_pieces == 256);
    put_head(m, ITH_MODEL_NORMALIZER,
             2 + name_bytes + 1 + varint_bytes((uint64_t)charsmap_bytes) + charsmap_bytes + 3 * 2);
    put_bytes(m, ITH_NORMALIZER_NAME, name, name_bytes);
    put_bytes(m, ITH_NORMALIZER_CHARSMAP, charsmap, charsmap_bytes);
    put_number(m, ITH_NORMALIZER_DUMMY_PREFIX, spaces.prefix);
    put_number(m, ITH_NORMALIZER_EXTRA_SPACES, spaces.joins);
    put_number(m, ITH_NORMALIZER_ESCAPES_SPACES, 1);
}

/* ---- tokenizer.json -------------------------------------------------------------------------------------------- */

/* The value of a base64 digit; -1 for another character. */
static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Decodes base64 to `out`, which has room for the length of the text. Returns the number of bytes; -1 for text that is
 * no base64. */
static int64_t decode_base64(const char *text, unsigned char *out)
{
    uint32_t bits = 0;
    int64_t bytes = 0;
    int held = 0;
    for (; *text && *text != '='; text++) {
        const int digit = digit_of(*text);
        if (digit < 0)
            return -1;
        bits = bits << 6 | (uint32_t)digit, held += 6;
        if (held >= 8)
            out[bytes++] = (unsigned char)(bits >> (held -= 8));
    }
    return bytes;
}

/* Finds the table of a normaliser, or of one in a sequence of normalisers. */
static const char *find_charsmap(const json_t *normalizer)
{
    const char *map = json_string_value(json_object_get(normalizer, "precompiled_charsmap"));
    const json_t *list = json_object_get(normalizer, "normalizers"), *one;
    size_t index;
    json_array_foreach(list, index, one)
    {
        if (!map)
            map = json_string_value(json_object_get(one, "precompiled_charsmap"));
    }
    return map;
}

/* Whether the reference finds an added token by its name in a text, before it divides the rest into pieces. These are
 * all special tokens, and other tokens whose text is the name of their piece and has no "▁": "▁" stands for a space,
 * and texts do not contain it. */
static bool is_found_by_name(const json_t *token, const json_t *pair)
{
    const char *name = json_string_value(json_object_get(token, "content"));
    const char *piece = json_string_value(json_array_get(pair, 0));
    return json_is_true(json_object_get(token, "special")) ||
           (name && *name && piece && !strcmp(name, piece) && !strstr(name, "\xe2\x96\x81"));
}

/* Sets for each piece of the vocabulary whether it is found by its name. Of several added tokens with one id the first
 * counts, so they are read from the last to the first. */
static void find_named(const json_t *added, const json_t *vocab, bool *named)
{
    const int64_t count = (int64_t)json_array_size(vocab);
    memset(named, 0, (size_t)count * sizeof *named);
    for (size_t i = json_array_size(added); i-- > 0;) {
        const json_t *token = json_array_get(added, i);
        const int64_t id = json_integer_value(json_object_get(token, "id"));
        if (id >= 0 && id < count)
            named[id] = is_found_by_name(token, json_array_get(vocab, (size_t)id));
    }
}

static bool is_byte(const char *piece)
{
    return strlen(piece) == 6 && !strncmp(piece, "<0x", 3) && piece[5] == '>';
}

/* SentencePiece needs a piece for each byte, or none. */
static bool has_all_bytes(const json_t *vocab)
{
    size_t index;
    const json_t *pair;
    int count = 0;
    json_array_foreach(vocab, index, pair)
    {
        const char *piece = json_string_value(json_array_get(pair, 0));
        count += piece && is_byte(piece);
    }
    return count == 256;
}

/* named: whether each piece is found by its name. */
static ith_status add_pieces(const char *path, const json_t *vocab, const bool *named, ith_piece_model *out)
{
    const json_t *pair;
    const bool bytes = has_all_bytes(vocab);
    size_t index;
    json_array_foreach(vocab, index, pair)
    {
        const json_t *text = json_array_get(pair, 0), *score = json_array_get(pair, 1);
        const char *piece = json_string_value(text);
        if (!piece || !json_is_number(score))
            return ith_fail(out->context, ITH_ERR_FORMAT, "%s: entry %zu of model.vocab must be [text, score]", path,
                            index);
        const ith_piece_type type = !strcmp(piece, "<unk>")   ? ITH_PIECE_UNKNOWN
                                    : named[index]            ? ITH_PIECE_CONTROL
                                    : bytes && is_byte(piece) ? ITH_PIECE_BYTE
                                                              : ITH_PIECE_NORMAL;
        ith_piece_model_add(out, piece, (int64_t)json_string_length(text), (float)json_number_value(score), type);
    }
    return ITH_OK;
}

static ith_status add_normaliser(const char *path, const json_t *root, ith_piece_model *out)
{
    const char *text = find_charsmap(json_object_get(root, "normalizer"));
    const int64_t length = text ? (int64_t)strlen(text) : 0;
    unsigned char *map = ith_alloc(out->context, length, 1, "a tokenizer");
    if (!map)
        return ITH_ERR_MEMORY;
    const int64_t bytes = text ? decode_base64(text, map) : 0;
    if (bytes >= 0)
        ith_piece_model_end(out, (ith_piece_spaces){true, true}, map, bytes);
    ith_free(out->context, map);
    return bytes >= 0 ? ITH_OK : ith_fail(out->context, ITH_ERR_FORMAT, "%s: precompiled_charsmap is no base64", path);
}

ith_status ith_piece_model_from_json(ith_context *context, const char *path, const json_t *root, ith_piece_model *out)
{
    const json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    const char *type = json_string_value(json_object_get(model, "type"));
    *out = (ith_piece_model){.context = context};
    if (!type || strcmp(type, "Unigram") != 0)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: model.type is %s; only \"Unigram\" is supported", path,
                        type ? ith_quote(type).text : "absent");
    if (!json_array_size(vocab))
        return ith_fail(context, ITH_ERR_FORMAT, "%s: model.vocab must be a list of pieces", path);
    bool *named = ith_alloc(context, (int64_t)json_array_size(vocab), sizeof *named, "a tokenizer");
    if (!named)
        return ITH_ERR_MEMORY;
    find_named(json_object_get(root, "added_tokens"), vocab, named);
    ith_status status = add_pieces(path, vocab, named, out);
    ith_free(context, named);
    if (!status)
        status = add_normaliser(path, root, out);
    return status ? status : out->failed ? ITH_ERR_MEMORY : ITH_OK;
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

/* The arrays of a tokenizer in a GGUF file. */
typedef struct gguf_tokenizer {
    ith_gguf_array tokens, scores, types, charsmap;
} gguf_tokenizer;

static ith_status read_arrays(ith_context *context, const ith_tensor_file *file, gguf_tokenizer *t)
{
    ith_status status = ith_gguf_array_read(context, file, "tokenizer.ggml.tokens", &t->tokens);
    if (!status)
        status = ith_gguf_array_read(context, file, "tokenizer.ggml.scores", &t->scores);
    if (!status)
        status = ith_gguf_array_read(context, file, "tokenizer.ggml.token_type", &t->types);
    if (!status)
        status = ith_gguf_array_read(context, file, "tokenizer.ggml.precompiled_charsmap", &t->charsmap);
    return status;
}

/* Reads how the converter of llama.cpp has described the spaces; true where it has not. */
static ith_piece_spaces read_spaces(const ith_tensor_file *file)
{
    const char *prefix = ith_tensor_file_metadata(file, "tokenizer.ggml.add_space_prefix");
    const char *joins = ith_tensor_file_metadata(file, "tokenizer.ggml.remove_extra_whitespaces");
    return (ith_piece_spaces){!prefix || strcmp(prefix, "false"), !joins || strcmp(joins, "false")};
}

static ith_status add_arrays(const char *path, const gguf_tokenizer *t, ith_piece_spaces spaces, ith_piece_model *out)
{
    const int64_t count = t->tokens.count;
    if (!t->tokens.data)
        return ith_fail(
            out->context, ITH_ERR_ARGUMENT,
            "tokenizer is needed: %s has no tokenizer.ggml.tokens; spiece.model of google/umt5-xxl can be it", path);
    if (t->tokens.type != ITH_GGUF_STRING || t->scores.type != ITH_GGUF_F32 || t->scores.count != count ||
        (t->types.type != ITH_GGUF_I32 && t->types.type != ITH_GGUF_U32) || t->types.count != count ||
        (t->charsmap.data && t->charsmap.bytes != t->charsmap.count))
        return ith_fail(out->context, ITH_ERR_FORMAT,
                        "%s: tokenizer.ggml.tokens, .scores and .token_type must be as many strings, f32 and i32",
                        path);
    int64_t at = 0, bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *piece = ith_gguf_array_string(&t->tokens, &at, &bytes);
        float score;
        int32_t type;
        memcpy(&score, t->scores.data + i * (int64_t)sizeof score, sizeof score);
        memcpy(&type, t->types.data + i * (int64_t)sizeof type, sizeof type);
        if (!piece || type < ITH_PIECE_NORMAL || type > ITH_PIECE_BYTE)
            return ith_fail(out->context, ITH_ERR_FORMAT, "%s: entry %lld of the tokenizer is damaged", path,
                            (long long)i);
        ith_piece_model_add(out, piece, bytes, score, (ith_piece_type)type);
    }
    ith_piece_model_end(out, spaces, t->charsmap.data, t->charsmap.data ? t->charsmap.bytes : 0);
    return out->failed ? ITH_ERR_MEMORY : ITH_OK;
}

ith_status ith_piece_model_from_gguf(ith_context *context, const char *path, const ith_tensor_file *file,
                                     ith_piece_model *out)
{
    gguf_tokenizer t = {.tokens = {.data = NULL}};
    *out = (ith_piece_model){.context = context};
    ith_status status = read_arrays(context, file, &t);
    if (!status)
        status = add_arrays(path, &t, read_spaces(file), out);
    ith_free(context, t.tokens.data);
    ith_free(context, t.scores.data);
    ith_free(context, t.types.data);
    ith_free(context, t.charsmap.data);
    return status;
}
