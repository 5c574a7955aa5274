/* SPDX-License-Identifier: Apache-2.0 */
/* A reader of plain headers (plain_header.h). It passes over the header twice: it counts, and then fills in the lists.
 */
#include "plain_header.h"

#include <string.h>

enum { MOST_DIGITS = 18, TYPE_BYTES = 16 };

/* A part of the header, not ended by a zero. */
typedef struct piece {
    const char *text;
    int64_t length;
} piece;

/* A pass over a header, and its position. */
typedef struct reader {
    ith_tensor_file *file;
    const char *at, *end;
    bool fills;         /* the second pass */
    int64_t text_bytes; /* of all names, keys and values with their zeros */
    char *text;         /* the next free byte of file->text */
} reader;

/* ---- Tokens. Each function returns false if something else comes ------------------------------------------------ */

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

static bool take(reader *r, char wanted)
{
    skip_space(r);
    if (r->at == r->end || *r->at != wanted)
        return false;
    r->at++;
    return true;
}

static bool is_plain(unsigned char byte)
{
    return byte >= ' ' && byte < 0x80 && byte != '"' && byte != '\\';
}

static bool take_string(reader *r, piece *out)
{
    if (!take(r, '"'))
        return false;
    out->text = r->at;
    while (r->at < r->end && is_plain((unsigned char)*r->at))
        r->at++;
    out->length = r->at - out->text;
    return r->at < r->end && *r->at++ == '"';
}

/* A whole number without a sign. */
static bool take_number(reader *r, int64_t *out)
{
    skip_space(r);
    const char *first = r->at;
    for (*out = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9' && r->at - first < MOST_DIGITS; r->at++)
        *out = 10 * *out + (*r->at - '0');
    return r->at > first && (*first != '0' || r->at == first + 1);
}

/* An array of at most `most` numbers. */
static bool take_numbers(reader *r, int64_t *numbers, int most, int *count)
{
    *count = 0;
    if (!take(r, '['))
        return false;
    if (take(r, ']'))
        return true;
    do {
        if (*count == most || !take_number(r, &numbers[(*count)++]))
            return false;
    } while (take(r, ','));
    return take(r, ']');
}

static bool is(const piece *text, const char *word)
{
    return text->length == (int64_t)strlen(word) && !memcmp(text->text, word, (size_t)text->length);
}

/* ---- Members of the header -------------------------------------------------------------------------------------- */

/* Copies a string into the text of the file; in the first pass it only counts its bytes. */
static const char *keep(reader *r, const piece *string)
{
    char *copy = r->text;
    r->text_bytes += string->length + 1;
    if (!r->fills)
        return NULL;
    memcpy(copy, string->text, (size_t)string->length);
    copy[string->length] = 0;
    r->text += string->length + 1;
    return copy;
}

static bool take_type(reader *r, ith_dtype *out)
{
    char name[TYPE_BYTES] = "";
    piece text;
    if (!take_string(r, &text) || text.length >= TYPE_BYTES)
        return false;
    memcpy(name, text.text, (size_t)text.length);
    *out = ith_tensor_type_parse(name);
    return *out != ITH_DTYPE_NONE;
}

/* Reads the description of a tensor. */
static bool take_description(reader *r, ith_tensor *out)
{
    int64_t offsets[2] = {0, 0};
    int count = 0, members = 0;
    bool type = false, shape = false, place = false;
    if (!take(r, '{'))
        return false;
    do {
        piece key;
        if (!take_string(r, &key) || !take(r, ':'))
            return false;
        if (is(&key, "dtype"))
            type = take_type(r, &out->dtype);
        else if (is(&key, "shape"))
            shape = take_numbers(r, out->shape, ITH_MAX_DIMS, &out->dims);
        else if (is(&key, "data_offsets"))
            place = take_numbers(r, offsets, 2, &count) && count == 2;
    } while (++members < 3 && take(r, ','));
    if (!take(r, '}') || !type || !shape || !place || offsets[1] > r->file->data_bytes ||
        !ith_tensor_bytes(out->dtype, out->dims, out->shape, &out->bytes) || out->bytes != offsets[1] - offsets[0])
        return false;
    out->data = r->file->data + offsets[0];
    return true;
}

static bool take_tensor(reader *r, const piece *name)
{
    ith_tensor tensor = {.struct_size = sizeof tensor, .name = keep(r, name)};
    if (!take_description(r, &tensor))
        return false;
    if (r->fills)
        r->file->tensors[r->file->count] = tensor;
    r->file->count++;
    return true;
}

static bool take_metadata(reader *r)
{
    if (!take(r, '{'))
        return false;
    if (take(r, '}'))
        return true;
    do {
        piece key, value;
        if (!take_string(r, &key) || !take(r, ':') || !take_string(r, &value))
            return false;
        const ith_metadata_pair pair = {.key = keep(r, &key), .value = keep(r, &value)};
        if (r->fills)
            r->file->pairs[r->file->pair_count] = pair;
        r->file->pair_count++;
    } while (take(r, ','));
    return take(r, '}');
}

/* Passes over the whole header. */
static bool take_header(reader *r)
{
    bool metadata = false;
    if (!take(r, '{'))
        return false;
    do {
        piece name;
        if (!take_string(r, &name) || !take(r, ':'))
            return false;
        const bool is_metadata = is(&name, ITH_TENSOR_METADATA_KEY);
        if (is_metadata && metadata)
            return false;
        metadata |= is_metadata;
        if (!(is_metadata ? take_metadata(r) : take_tensor(r, &name)))
            return false;
    } while (take(r, ','));
    const bool ends = take(r, '}');
    skip_space(r);
    return ends && r->at == r->end;
}

ith_status ith_plain_header_read(ith_tensor_file *file, const char *header, int64_t bytes, bool *plain)
{
    reader r = {.file = file, .at = header, .end = header + bytes};
    *plain = bytes > 0 && *header == '{' && take_header(&r);
    const int64_t tensors = file->count, pairs = file->pair_count;
    file->count = file->pair_count = 0;
    if (!*plain)
        return ITH_OK;
    file->tensors = ith_alloc_zero(file->context, tensors, sizeof *file->tensors, "a list of tensors");
    file->pairs = ith_alloc_zero(file->context, pairs, sizeof *file->pairs, "metadata");
    file->text = ith_alloc(file->context, r.text_bytes, 1, "names of tensors");
    if (!file->tensors || !file->pairs || !file->text)
        return ITH_ERR_MEMORY;
    r = (reader){.file = file, .at = header, .end = header + bytes, .fills = true, .text = file->text};
    take_header(&r);
    return ITH_OK;
}
