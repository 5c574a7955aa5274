/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer with other vocabularies: models made by hand, tokenizers in GGUF files, and damaged files. */
#include "support/engine/tokenizer_check.h"
#include "support/fixture.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/temporary.h"
#include "wan/text/piece_model.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static unsigned char *model; /* the spiece.model of the small model */
static size_t model_bytes;

static int set_up(void **state)
{
    model = (unsigned char *)temporary_read("../models/shapes/tokenizer/spiece.model", &model_bytes);
    return context_set_up(state);
}

static int tear_down(void **state)
{
    free(model);
    return context_tear_down(state);
}

/* ---- Models made by hand ----------------------------------------------------------------------------------------- */

/* A small vocabulary, whose best divisions follow by hand from the rules of SentencePiece. The sum of the scores
 * counts. An unknown character scores 10 less than the worst usual piece (-5), whatever longer pieces begin with it. A
 * piece that a user has defined scores -0.1. */
static void divisions_have_the_best_sum(void **state)
{
    (void)state;
    enum { UNKNOWN = 2, SPACE = 3, AB, BCD, X, Y, XY, W, WZ, Q, HIJK, GH, I, J, K, MNOP, LM, N, O, P };
    static const struct {
        const char *piece;
        float score;
        ith_piece_type type;
    } pieces[] = {{"<pad>", -100, ITH_PIECE_CONTROL}, {"</s>", 0, ITH_PIECE_CONTROL}, {"<unk>", 0, ITH_PIECE_UNKNOWN},
                  {"\u2581", -1, ITH_PIECE_NORMAL},   {"ab", -2, ITH_PIECE_NORMAL},   {"bcd", -3, ITH_PIECE_NORMAL},
                  {"x", -0.2f, ITH_PIECE_NORMAL},     {"y", -0.2f, ITH_PIECE_NORMAL}, {"xy", -9, ITH_PIECE_USER},
                  {"w", -4.5f, ITH_PIECE_NORMAL},     {"wz", -20, ITH_PIECE_UNUSED},  {"q", -5, ITH_PIECE_NORMAL},
                  {"hijk", -1, ITH_PIECE_NORMAL},     {"gh", -5, ITH_PIECE_NORMAL},   {"i", -5, ITH_PIECE_NORMAL},
                  {"j", -5, ITH_PIECE_NORMAL},        {"k", -0.5f, ITH_PIECE_NORMAL}, {"mnop", -1, ITH_PIECE_NORMAL},
                  {"lm", -5, ITH_PIECE_NORMAL},       {"n", -5, ITH_PIECE_NORMAL},    {"o", -5, ITH_PIECE_NORMAL},
                  {"p", -1.5f, ITH_PIECE_NORMAL}};
    static const struct {
        const char *text;
        int32_t ids[6];
        int64_t count;
    } cases[] = {
        {"ab", {SPACE, AB, 1}, 3},
        {"abcd", {SPACE, UNKNOWN, BCD, 1}, 4}, /* -15 - 3 is more than -2 - 30 */
        {"xy", {SPACE, XY, 1}, 3},
        {"wz", {SPACE, W, UNKNOWN, 1}, 4},
        {"qx", {SPACE, Q, X, 1}, 4},
        {"ghijk", {SPACE, GH, I, J, K, 1}, 6},   /* -15.5 is more than -15 - 1 */
        {"lmnop", {SPACE, UNKNOWN, MNOP, 1}, 4}, /* -15 - 1 is more than -16.5 */
    };
    ith_piece_model made = {.context = context};
    ith_tokenizer *tokenizer = NULL;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        ith_piece_model_add(&made, pieces[i].piece, (int64_t)strlen(pieces[i].piece), pieces[i].score, pieces[i].type);
    ith_piece_model_end(&made, (ith_piece_spaces){true, true}, NULL, 0);
    assert_false(made.failed);
    check(context, ith_tokenizer_make(context, "it", made.data, made.bytes, &tokenizer));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_ids(tokenizer, cases[i].text, cases[i].ids, cases[i].count);
    ith_tokenizer_free(context, &tokenizer);
    ith_free(context, made.data);
}

/* The pieces with which every model below begins: </s> and <unk> with their ids 0 and 1. */
static ith_piece_model begin_model(void)
{
    ith_piece_model made = {.context = context};
    ith_piece_model_add(&made, "</s>", 4, 0, ITH_PIECE_CONTROL);
    ith_piece_model_add(&made, "<unk>", 5, 0, ITH_PIECE_UNKNOWN);
    return made;
}

/* Makes the tokenizer of a model, and frees the model. map: the normaliser's table. */
static ith_status end_model(ith_piece_model *made, const void *map, int64_t map_bytes, ith_tokenizer **tokenizer)
{
    ith_piece_model_end(made, (ith_piece_spaces){true, true}, map, map_bytes);
    assert_false(made->failed);
    const ith_status status = ith_tokenizer_make(context, "it", made->data, made->bytes, tokenizer);
    ith_free(context, made->data);
    return status;
}

/* The lengths in the model file take one byte up to 127, and then two. */
static void pieces_of_every_length_are_pieces(void **state)
{
    (void)state;
    enum { MOST = 300, FIRST_ID = 2 };
    char text[3 + MOST + 1] = "\u2581";
    memset(text + 3, 'x', MOST);
    ith_piece_model made = begin_model();
    for (int length = 1; length <= MOST; length++)
        ith_piece_model_add(&made, text, 3 + length, -1, ITH_PIECE_NORMAL);
    ith_tokenizer *tokenizer = NULL;
    check(context, end_model(&made, NULL, 0, &tokenizer));
    for (int length = MOST; length >= 1; length--) {
        const int32_t wanted[] = {FIRST_ID + length - 1, 0};
        text[3 + length] = '\0';
        expect_ids(tokenizer, text + 3, wanted, 2);
    }
    ith_tokenizer_free(context, &tokenizer);
}

/* If a text goes on with two names of special pieces, the longer one counts, as in tokenizers' added vocabulary. */
static void the_longest_special_name_counts(void **state)
{
    (void)state;
    enum { AT_AT = 2, AT, AT_AT_AT };
    const int32_t one[] = {AT, 0}, two[] = {AT_AT, 0}, three[] = {AT_AT_AT, 0}, four[] = {AT_AT_AT, AT, 0};
    ith_piece_model made = begin_model();
    ith_piece_model_add(&made, "@@", 2, 0, ITH_PIECE_CONTROL);
    ith_piece_model_add(&made, "@", 1, 0, ITH_PIECE_CONTROL);
    ith_piece_model_add(&made, "@@@", 3, 0, ITH_PIECE_CONTROL);
    ith_piece_model_add(&made, "a", 1, -1, ITH_PIECE_NORMAL);
    ith_tokenizer *tokenizer = NULL;
    check(context, end_model(&made, NULL, 0, &tokenizer));
    expect_ids(tokenizer, "@", one, 2);
    expect_ids(tokenizer, "@@", two, 2);
    expect_ids(tokenizer, "@@@", three, 2);
    expect_ids(tokenizer, "@@@@", four, 3);
    ith_tokenizer_free(context, &tokenizer);
}

static void scores_are_finite(void **state)
{
    (void)state;
    const float scores[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        ith_piece_model made = begin_model();
        ith_tokenizer *tokenizer = NULL;
        ith_piece_model_add(&made, "a", 1, scores[i], ITH_PIECE_NORMAL);
        assert_int_equal(end_model(&made, NULL, 0, &tokenizer), ITH_ERR_FORMAT);
        assert_non_null(strstr(ith_context_error(context), "score of piece 2"));
    }
}

/* A prompt ends with </s>, so a tokenizer needs it. */
static void a_tokenizer_has_an_end(void **state)
{
    (void)state;
    ith_piece_model made = {.context = context};
    ith_tokenizer *tokenizer = NULL;
    ith_piece_model_add(&made, "<unk>", 5, 0, ITH_PIECE_UNKNOWN);
    ith_piece_model_add(&made, "a", 1, -1, ITH_PIECE_NORMAL);
    assert_int_equal(end_model(&made, NULL, 0, &tokenizer), ITH_ERR_FORMAT);
    assert_non_null(strstr(ith_context_error(context), "has no </s>"));
}

#define BLOCK 256 /* units of a trie: the children of a node */

/* A normaliser's table. Its trie has the keys "a", "aa" and so on, `length` of them if `ends` is set, otherwise one
 * path of this length without a key. All keys are replaced by the string at `string`. */
typedef struct table {
    int length;
    bool ends, wide;      /* wide: offsets are written as multiples of 256 */
    int cut_units;        /* missing at the end of the trie */
    unsigned char letter; /* the only string; 0: "b" */
    uint32_t string;      /* the keys' replacement */
    int tail;             /* the last byte of the table */
    int64_t trie_bytes;   /* 0, or a wrong size */
    bool valid, either;   /* either: may be taken or refused */
} table;

/* The unit of a node with this label: its children are the units from `children` on. */
static uint32_t unit_of(const table *t, uint32_t label, uint32_t index, uint32_t children)
{
    const uint32_t offset = index ^ children;
    if (t->wide && offset % 256 == 0)
        return label | 0x200u | (offset / 256) << 10;
    return label | offset << 10;
}

/* Writes the table, and returns its bytes. Node i of the path is the unit for 'a' in block i, and its children are
 * block i + 1. */
static int64_t write_table(const table *t, unsigned char *out)
{
    const int units = (t->length + 2) * BLOCK - t->cut_units;
    uint32_t *unit = malloc((size_t)(t->length + 2) * BLOCK * sizeof *unit);
    const uint32_t ends = t->ends ? 0x100 : 0;
    for (int i = 0; i < (t->length + 2) * BLOCK; i++)
        unit[i] = 0x80000000u | (i % BLOCK ? 0 : t->string);
    unit[0] = unit_of(t, 0, 0, BLOCK);
    for (uint32_t i = 1; i <= (uint32_t)t->length; i++)
        unit[i * BLOCK + 'a'] = unit_of(t, 'a' | ends, i * BLOCK + 'a', (i + 1) * BLOCK);
    const uint32_t bytes = (uint32_t)(t->trie_bytes ? t->trie_bytes : units * 4);
    memcpy(out, &bytes, 4);
    memcpy(out + 4, unit, (size_t)units * 4);
    out[4 + units * 4] = t->letter ? t->letter : 'b', out[5 + units * 4] = (unsigned char)t->tail;
    free(unit);
    return 6 + units * 4;
}

/* SentencePiece follows the offsets of a table without a check, and has room for 32 keys that begin one another. */
static void tables_are_checked_to_their_ends(void **state)
{
    (void)state;
    static const table cases[] = {
        {.length = 1, .ends = true, .valid = true},
        {.length = 1, .ends = true, .wide = true, .valid = true},
        {.length = 1, .ends = true, .letter = 0xf0, .valid = true}, /* the first byte of four */
        {.length = 1, .ends = true, .cut_units = 1},
        {.length = 0, .valid = true},
        {.length = 0, .cut_units = 1},
        {.length = 0, .wide = true, .cut_units = 1},
        {.length = 1, .ends = true, .string = 1, .valid = true},
        {.length = 1, .ends = true, .string = 2},
        /* no key ends, so no string is read; SentencePiece 0.2.2 refuses it */
        {.length = 1, .string = 2, .either = true},
        {.length = 32, .ends = true, .valid = true},
        {.length = 33, .ends = true},
        {.length = 256, .valid = true},
        {.length = 257},
        {.length = 1, .ends = true, .tail = 'b'},
        {.length = 1, .ends = true, .trie_bytes = 3 * BLOCK * 4 + 1},
        {.length = 1, .ends = true, .trie_bytes = 3 * BLOCK * 4 + 4},
    };
    static const int32_t b[] = {2, 0}, unknown[] = {1, 0};
    unsigned char *map = malloc(260 * BLOCK * 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ith_piece_model made = begin_model();
        ith_tokenizer *tokenizer = NULL;
        ith_piece_model_add(&made, "\u2581b", 4, -1, ITH_PIECE_NORMAL);
        const ith_status status = end_model(&made, map, write_table(&cases[i], map), &tokenizer);
        if (status != (cases[i].valid ? ITH_OK : ITH_ERR_FORMAT) && !(cases[i].either && !status))
            fail_msg("case %zu: %s", i, status ? ith_context_error(context) : "taken");
        if (cases[i].valid && cases[i].ends && cases[i].length == 1 && !cases[i].string)
            expect_ids(tokenizer, "a", cases[i].letter ? unknown : b, 2);
        ith_tokenizer_free(context, &tokenizer);
    }
    free(map);
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

typedef struct writer {
    unsigned char bytes[1 << 20];
    size_t used;
} writer;

static void put(writer *w, const void *data, size_t bytes)
{
    memcpy(w->bytes + w->used, data, bytes);
    w->used += bytes;
}

static void put_u32(writer *w, uint32_t value)
{
    put(w, &value, sizeof value);
}

static void put_u64(writer *w, uint64_t value)
{
    put(w, &value, sizeof value);
}

static void put_text(writer *w, const char *text)
{
    put_u64(w, strlen(text));
    put(w, text, strlen(text));
}

static void begin_array(writer *w, const char *key, uint32_t type, uint64_t count)
{
    put_text(w, key);
    put_u32(w, 9);
    put_u32(w, type);
    put_u64(w, count);
}

/* The bytes of the normaliser's table in spiece.model. The table is found by its first bytes, the size of its trie. */
static const unsigned char *charsmap(size_t *bytes)
{
    static const unsigned char begin[] = {0x00, 0xbc, 0x02, 0x00};
    for (size_t i = 4; i + 4 < model_bytes; i++)
        if (!memcmp(model + i, begin, 4) && model[i - 1] < 0x80 && model[i - 2] >= 0x80 && model[i - 3] >= 0x80) {
            *bytes = (size_t)(model[i - 3] & 0x7f) | (size_t)(model[i - 2] & 0x7f) << 7 | (size_t)model[i - 1] << 14;
            return model + i;
        }
    fail_msg("no table");
    return NULL;
}

static void put_bool(writer *w, const char *key, bool value)
{
    put_text(w, key);
    put_u32(w, 7);
    put(w, value ? "\1" : "\0", 1);
}

/* The tokenizer of a GGUF file. */
typedef struct gguf {
    size_t scores, types; /* numbers of scores and of types */
    int32_t first_type;   /* of the first piece */
    uint32_t map_type;    /* of an element of the normaliser's table: 0 is u8, 4 is u32 */
    bool prefix, joins;   /* what the file says about spaces */
} gguf;

static const gguf whole = {.scores = 1536, .types = 1536, .first_type = 3, .prefix = true, .joins = true};

/* Writes a GGUF file without tensors, with the tokenizer that transformers 5 has saved. */
static void write_gguf(const char *path, const gguf *g)
{
    writer *w = calloc(1, sizeof *w);
    json_t *root = json_load_file(TOKENIZER_SAVED, 0, NULL),
           *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *pair;
    size_t index, map_bytes = 0, count = json_array_size(vocab);
    const unsigned char *map = charsmap(&map_bytes);
    put(w, "GGUF", 4);
    put_u32(w, 3), put_u64(w, 0), put_u64(w, 6);
    put_bool(w, "tokenizer.ggml.add_space_prefix", g->prefix);
    put_bool(w, "tokenizer.ggml.remove_extra_whitespaces", g->joins);
    begin_array(w, "tokenizer.ggml.tokens", 8, count);
    json_array_foreach(vocab, index, pair)
    {
        put_text(w, json_string_value(json_array_get(pair, 0)));
    }
    begin_array(w, "tokenizer.ggml.scores", 6, g->scores);
    json_array_foreach(vocab, index, pair)
    {
        const float score = (float)json_number_value(json_array_get(pair, 1));
        if (index < g->scores)
            put(w, &score, sizeof score);
    }
    begin_array(w, "tokenizer.ggml.token_type", 5, g->types);
    json_array_foreach(vocab, index, pair)
    {
        const char *piece = json_string_value(json_array_get(pair, 0));
        const int32_t type = !index                      ? g->first_type
                             : index < 3                 ? 3
                             : index == 3                ? 2
                             : !strncmp(piece, "<0x", 3) ? 6
                                                         : 1;
        if (index < g->types)
            put(w, &type, sizeof type);
    }
    begin_array(w, "tokenizer.ggml.precompiled_charsmap", g->map_type, g->map_type ? map_bytes / 4 : map_bytes);
    put(w, map, map_bytes);
    temporary_write(path, w->bytes, w->used);
    json_decref(root);
    free(w);
}

/* SentencePiece gives these ids with these two settings in spiece.model. U+200B becomes a space there. */
static void a_tokenizer_in_gguf_says_what_spaces_do(void **state)
{
    (void)state;
    static const struct {
        bool prefix, joins;
        int32_t ids[4];
        int count;
    } cases[] = {
        {false, false, {324, 263, 296, 1}, 4},
        {false, true, {324, 296, 1}, 3},
        {true, false, {260, 263, 296, 1}, 4},
        {true, true, {260, 296, 1}, 3},
    };
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "umt5.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ith_tokenizer *tokenizer = NULL;
        int32_t ids[ITH_TEXT_LEN];
        int64_t count = 0;
        gguf file = whole;
        file.prefix = cases[i].prefix, file.joins = cases[i].joins;
        write_gguf(path, &file);
        check(context, ith_tokenizer_load(context, path, &tokenizer));
        check(context, ith_tokenizer_encode(context, tokenizer, "a\u200b\u200bred", ids, &count));
        assert_int_equal(count, cases[i].count);
        assert_memory_equal(ids, cases[i].ids, (size_t)count * sizeof *ids);
        ith_tokenizer_free(context, &tokenizer);
    }
    temporary_remove(folder);
}

static void a_tokenizer_in_gguf_gives_the_same_ids(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    json_t *prompts = json_load_file("golden/shapes/tokenizer.json", 0, NULL), *one;
    size_t index;
    ith_tokenizer *tokenizer = NULL;
    write_gguf(temporary_path(folder, "umt5.gguf"), &whole);
    check(context, ith_tokenizer_load(context, temporary_path(folder, "umt5.gguf"), &tokenizer));
    json_array_foreach(prompts, index, one)
    {
        int32_t ids[ITH_TEXT_LEN];
        int64_t count = 0;
        const json_t *wanted = json_object_get(one, "ids");
        check(context,
              ith_tokenizer_encode(context, tokenizer, json_string_value(json_object_get(one, "text")), ids, &count));
        assert_int_equal(count, json_array_size(wanted));
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(ids[i], json_integer_value(json_array_get(wanted, (size_t)i)));
    }
    ith_tokenizer_free(context, &tokenizer);
    json_decref(prompts);
    temporary_remove(folder);
}

/* Each piece has a score and a type, and the table consists of bytes. */
static void a_tokenizer_in_gguf_is_complete(void **state)
{
    (void)state;
    static const struct {
        gguf file;
        const char *word;
    } cases[] = {
        {{.scores = 1535, .types = 1536, .first_type = 3}, "as many"},
        {{.scores = 1536, .types = 1535, .first_type = 3}, "as many"},
        {{.scores = 1536, .types = 1536, .first_type = 3, .map_type = 4}, "as many"},
        {{.scores = 1536, .types = 1536, .first_type = 7}, "entry 0"},
        {{.scores = 1536, .types = 1536, .first_type = 0}, "entry 0"},
    };
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "umt5.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ith_tokenizer *tokenizer = NULL;
        write_gguf(path, &cases[i].file);
        assert_int_equal(ith_tokenizer_load(context, path, &tokenizer), ITH_ERR_FORMAT);
        assert_non_null(strstr(ith_context_error(context), cases[i].word));
        assert_null(tokenizer);
    }
    temporary_remove(folder);
}

/* Loads a file in which some bytes are changed and, if this succeeds, encodes a text. Returns whether it succeeded. */
static bool survives_in(const char *path, const char *bytes, size_t count, uint64_t *random)
{
    char *copy = malloc(count);
    ith_tokenizer *tokenizer = NULL;
    int32_t ids[ITH_TEXT_LEN];
    int64_t id_count = 0;
    memcpy(copy, bytes, count);
    for (uint32_t changes = 1 + random_below(random, 4); changes; changes--)
        copy[random_below(random, (uint32_t)count)] = (char)random_bits(random);
    temporary_write(path, copy, count);
    const bool loads = !ith_tokenizer_load(context, path, &tokenizer);
    if (loads)
        check(context, ith_tokenizer_encode(context, tokenizer, "a red circle, \xc3\xa9\xe2\x82\xac", ids, &id_count));
    ith_tokenizer_free(context, &tokenizer);
    free(copy);
    return loads;
}

static void damaged_vocabularies_are_survived(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    size_t bytes[2] = {0, 0};
    write_gguf(temporary_path(folder, "whole.gguf"), &whole);
    char *files[] = {temporary_read(TOKENIZER_SAVED, &bytes[0]),
                     temporary_read(temporary_path(folder, "whole.gguf"), &bytes[1])};
    uint64_t random = 11;
    for (int form = 0; form < 2; form++) {
        const char *name = form ? "damaged.gguf" : "damaged.json";
        int loaded = 0;
        for (int round = 0; round < 60; round++)
            loaded += survives_in(temporary_path(folder, name), files[form], bytes[form], &random);
        print_message("%d of 60 damaged files are tokenizers\n", loaded);
        assert_true(loaded > 0 && loaded < 60);
    }
    free(files[0]), free(files[1]);
    temporary_remove(folder);
}

static void failing_allocations_are_survived(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "umt5.gguf");
    write_gguf(path, &whole);
    assert_true(refuse_every_allocation(load_and_tokenize, (void *)path, 1) > 8);
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divisions_have_the_best_sum),
        cmocka_unit_test(pieces_of_every_length_are_pieces),
        cmocka_unit_test(the_longest_special_name_counts),
        cmocka_unit_test(scores_are_finite),
        cmocka_unit_test(a_tokenizer_has_an_end),
        cmocka_unit_test(tables_are_checked_to_their_ends),
        cmocka_unit_test(a_tokenizer_in_gguf_says_what_spaces_do),
        cmocka_unit_test(a_tokenizer_in_gguf_gives_the_same_ids),
        cmocka_unit_test(a_tokenizer_in_gguf_is_complete),
        cmocka_unit_test(damaged_vocabularies_are_survived),
        cmocka_unit_test(failing_allocations_are_survived),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
