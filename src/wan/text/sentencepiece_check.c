/* SPDX-License-Identifier: Apache-2.0 */
/* A SentencePiece model is a protocol buffer message (sentencepiece_fields.h).
 *
 * The charsmap is a little-endian uint32 with the size of a trie, the trie, and strings that end in 0. The trie is a
 * double array (https://github.com/s-yata/darts-clone) of 32-bit units:
 *
 *     bits 0-7   label: the byte that leads to this unit   bit 8    a key ends here
 *     bit 9      the offset is multiplied by 256           bits 10- offset: the child for a byte c is unit
 *                                                                   (index ^ offset) ^ c
 *
 * If a key ends at a unit, the unit at (index ^ offset) holds the position of its string, with bit 31 set.
 * SentencePiece follows offsets without checking bounds, and has room for 32 keys that are prefixes of one text; this
 * file checks both. */
#include "sentencepiece_check.h"

#include "protobuf.h"
#include "sentencepiece_fields.h"

#include <math.h>
#include <string.h>

#define MOST_NESTED_KEYS 32 /* SentencePiece has room for this number of keys that are prefixes of one text */
#define LONGEST_KEY 256
#define LONGEST_PIECE 1024 /* bytes; SentencePiece calls itself for every byte of a piece, so its stack must suffice */

/* ---- The normaliser's trie ------------------------------------------------------------------------------------- */

/* The trie of a normaliser while it is checked. */
typedef struct trie {
    const unsigned char *units;
    int64_t unit_count, string_bytes;
    int8_t *nested; /* for each node: the largest number of keys on a path down from it; UNSEEN before its visit, OPEN
                       during it */
} trie;

enum { UNSEEN = -1, OPEN = -2, BROKEN = -3 };

static uint32_t unit_at(const trie *t, int64_t index)
{
    return ith_protobuf_u32(t->units + 4 * index);
}

/* Returns the largest number of keys on a path down from node `index` of the trie, or BROKEN if an offset leads out of
 * the trie or back to a node above. */
static int count_nested(const trie *t, int64_t index, int depth)
{
    if (t->nested[index] == OPEN || depth > LONGEST_KEY)
        return BROKEN;
    if (t->nested[index] != UNSEEN)
        return t->nested[index];
    t->nested[index] = OPEN;
    uint32_t unit = unit_at(t, index);
    int64_t children = index ^ (int64_t)((unit >> 10) << ((unit & 0x200u) >> 6));
    if ((children | 0xff) >= t->unit_count)
        return BROKEN;
    int most = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        int64_t child = children ^ byte;
        if ((unit_at(t, child) & 0x800000ffu) != byte)
            continue;
        int below = count_nested(t, child, depth + 1);
        if (below == BROKEN)
            return BROKEN;
        most = below > most ? below : most;
    }
    bool ends = (unit & 0x100u) != 0;
    if (ends && (int64_t)(unit_at(t, children) & 0x7fffffffu) >= t->string_bytes)
        return BROKEN;
    most += ends;
    if (most > MOST_NESTED_KEYS)
        return BROKEN;
    t->nested[index] = (int8_t)most;
    return most;
}

/* Checks the size of the normaliser's table (precompiled_charsmap), and every offset in its trie. */
static ith_status check_charsmap(ith_context *context, const char *path, ith_protobuf map)
{
    if (map.bytes == 0)
        return ITH_OK;
    int64_t trie_bytes = map.bytes < 4 ? 0 : ith_protobuf_u32(map.at);
    if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= map.bytes - 4 || map.at[map.bytes - 1] != 0)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: the normaliser's table has no valid size", path);
    trie t = {map.at + 4, trie_bytes / 4, map.bytes - 4 - trie_bytes, NULL};
    t.nested = ith_alloc(context, t.unit_count, 1, "the check of a tokenizer");
    if (!t.nested)
        return ITH_ERR_MEMORY;
    memset(t.nested, UNSEEN, (size_t)t.unit_count);
    bool broken = count_nested(&t, 0, 0) == BROKEN;
    ith_free(context, t.nested);
    return broken ? ith_fail(context, ITH_ERR_FORMAT, "%s: the normaliser's table points outside itself", path)
                  : ITH_OK;
}

/* ---- The model ------------------------------------------------------------------------------------------------- */

static ith_status fail_unreadable(ith_context *context, const char *path)
{
    return ith_fail(context, ITH_ERR_FORMAT, "%s is not a SentencePiece model, or is cut short", path);
}

/* Checks that a piece is not too long, and that its score is finite: a text has no best division into pieces
 * otherwise. */
static ith_status check_piece(ith_context *context, const char *path, int64_t id, ith_protobuf message)
{
    while (message.bytes > 0) {
        ith_protobuf_field f;
        float score = 0;
        if (!ith_protobuf_next(&message, &f))
            return fail_unreadable(context, path);
        if (f.number == ITH_PIECE_TEXT && f.has_slice && f.slice.bytes > LONGEST_PIECE)
            return ith_fail(context, ITH_ERR_FORMAT, "%s: piece %lld has %lld bytes; %d is the most", path,
                            (long long)id, (long long)f.slice.bytes, LONGEST_PIECE);
        if (f.number == ITH_PIECE_SCORE && !f.has_slice && f.slice.bytes == 4)
            score = ith_protobuf_float(f.slice.at);
        if (!isfinite(score))
            return ith_fail(context, ITH_ERR_FORMAT, "%s: the score of piece %lld is not finite", path, (long long)id);
    }
    return ITH_OK;
}

static ith_status check_trainer(ith_context *context, const char *path, ith_protobuf message)
{
    while (message.bytes > 0) {
        ith_protobuf_field f;
        if (!ith_protobuf_next(&message, &f))
            return fail_unreadable(context, path);
        if (f.number == ITH_TRAINER_MODEL_TYPE && !f.has_slice && f.value != ITH_MODEL_TYPE_UNIGRAM)
            return ith_fail(context, ITH_ERR_UNSUPPORTED,
                            "%s: a SentencePiece model of type %llu; umT5 has Unigram (1)", path,
                            (unsigned long long)f.value);
    }
    return ITH_OK;
}

static ith_status check_normalizer(ith_context *context, const char *path, ith_protobuf message)
{
    ith_status status = ITH_OK;
    while (message.bytes > 0 && !status) {
        ith_protobuf_field f;
        if (!ith_protobuf_next(&message, &f))
            return fail_unreadable(context, path);
        if (f.number == ITH_NORMALIZER_CHARSMAP && f.has_slice)
            status = check_charsmap(context, path, f.slice);
    }
    return status;
}

ith_status ith_sentencepiece_check(ith_context *context, const char *path, const void *model, int64_t bytes)
{
    ith_protobuf message = {model, bytes};
    int64_t pieces = 0;
    ith_status status = bytes > 0 ? ITH_OK : fail_unreadable(context, path);
    while (message.bytes > 0 && !status) {
        ith_protobuf_field f;
        if (!ith_protobuf_next(&message, &f))
            return fail_unreadable(context, path);
        if (f.number == ITH_MODEL_PIECE && f.has_slice)
            status = check_piece(context, path, pieces++, f.slice);
        else if (f.number == ITH_MODEL_TRAINER && f.has_slice)
            status = check_trainer(context, path, f.slice);
        else if (f.number == ITH_MODEL_NORMALIZER && f.has_slice)
            status = check_normalizer(context, path, f.slice);
    }
    return status;
}
