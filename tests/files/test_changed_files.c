/* SPDX-License-Identifier: Apache-2.0 */
/* Weight files that another process cuts, overwrites, replaces or removes while they are open: every read of them is a
 * failure with a sentence, and every change is found. */
#include "files/mapping.h"
#include "files/store.h"
#include "files/tensor.h"
#include "support/engine/misaligned.h"
#include "support/folder_fixture.h"
#include "support/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NUMBERS 65536 /* f32 numbers of the large tensor, 64 pages of 4 KiB */

static const char *path_of(const char *name)
{
    return temporary_path(folder, name);
}

/* A file with a large tensor "weight" of ones, and a small one, "bias". */
static void write_model(const char *name)
{
    static float ones[NUMBERS];
    for (int i = 0; i < NUMBERS; i++)
        ones[i] = 1;
    const ith_tensor list[] = {{.struct_size = sizeof(ith_tensor),
                                .name = "weight",
                                .dtype = ITH_F32,
                                .dims = 1,
                                .shape = {NUMBERS},
                                .data = ones,
                                .bytes = sizeof ones},
                               {.struct_size = sizeof(ith_tensor),
                                .name = "bias",
                                .dtype = ITH_F32,
                                .dims = 1,
                                .shape = {2},
                                .data = ones,
                                .bytes = 8}};
    assert_int_equal(ith_tensor_file_write(context, path_of(name), list, 2, NULL, NULL, 0), ITH_OK);
}

static void assert_cut(ith_status status, const char *word)
{
    assert_int_equal(status, ITH_ERR_IO);
    if (!strstr(ith_context_error(context), word) || !strstr(ith_context_error(context), "was cut"))
        fail_msg("'%s' and 'was cut' are not in: %s", word, ith_context_error(context));
}

static void a_cut_tensor_is_not_read(void **state)
{
    (void)state;
    ith_tensor_file *file = NULL;
    float *out = malloc(NUMBERS * sizeof *out);
    write_model("a.safetensors");
    assert_int_equal(ith_tensor_file_open(context, path_of("a.safetensors"), &file), ITH_OK);
    const ith_tensor *weight = ith_tensor_file_find(file, "weight");
    assert_int_equal(ith_tensor_to_f32(context, weight, out), ITH_OK);
    assert_int_equal(ith_tensor_copy(context, weight, out), ITH_OK);
    assert_true(out[0] == 1 && out[NUMBERS - 1] == 1);
    temporary_require(truncate(path_of("a.safetensors"), 8192) == 0, "truncate");
    assert_cut(ith_tensor_to_f32(context, weight, out), "'weight'");
    assert_cut(ith_tensor_copy(context, weight, out), "'weight'");
    assert_cut(ith_tensor_part_to_f32(context, "FILE", weight, NUMBERS - 1, 1, out), "FILE");
    assert_int_equal(ith_tensor_part_to_f32(context, "FILE", weight, 0, 8, out),
                     ITH_OK); /* this part of the file still exists */
    ith_tensor_file_close(&file);
    free(out);
}

static void a_cut_store_is_not_read(void **state)
{
    (void)state;
    ith_store *store = NULL;
    uint64_t hash = 0;
    write_model("model.safetensors");
    assert_int_equal(ith_store_open(context, folder, "model", ITH_STORE_FILE_FIRST, &store), ITH_OK);
    assert_int_equal(ith_store_hash(context, store, &hash), ITH_OK);
    assert_int_equal(ith_store_check_unchanged(context, store), ITH_OK);
    temporary_require(truncate(path_of("model.safetensors"), 0) == 0, "truncate");
    assert_cut(ith_store_hash(context, store, &hash), path_of("model.safetensors"));
    assert_int_equal(ith_store_check_unchanged(context, store), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), path_of("model.safetensors")));
    ith_store_close(&store);
}

static void a_cut_misaligned_tensor_is_not_copied(void **state)
{
    (void)state;
    ith_store *store = NULL;
    const ith_tensor *weight = NULL;
    const int64_t before = memory_of(context).current_bytes;
    write_model("odd.safetensors");
    write_misaligned(path_of("odd.safetensors"), path_of("odd.safetensors"));
    assert_int_equal(ith_store_open(context, folder, "odd", ITH_STORE_FILE_FIRST, &store), ITH_OK);
    temporary_require(truncate(path_of("odd.safetensors"), 8192) == 0, "truncate");
    for (int i = 0; i < 2; i++) /* a tensor that could not be copied leaves nothing behind */
        assert_cut(ith_store_take(context, store, "weight", 1, (int64_t[]){NUMBERS}, &weight),
                   path_of("odd.safetensors"));
    ith_store_close(&store);
    assert_int_equal(memory_of(context).current_bytes, before);
}

/* ---- Changes --------------------------------------------------------------------------------------------------- */

static void overwrite(const char *path)
{
    const int file = open(path, O_WRONLY);
    temporary_require(file >= 0 && pwrite(file, "x", 1, 4096) == 1 && close(file) == 0, path);
}

static void append(const char *path)
{
    const int file = open(path, O_WRONLY | O_APPEND);
    temporary_require(file >= 0 && write(file, "x", 1) == 1 && close(file) == 0, path);
}

static void cut(const char *path)
{
    temporary_require(truncate(path, 4096) == 0, path);
}

static void replace(const char *path)
{
    write_model("other");
    temporary_require(rename(path_of("other"), path) == 0, path);
}

static void every_change_is_found(void **state)
{
    (void)state;
    void (*const changes[])(const char *) = {overwrite, append, cut, replace};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        ith_mapping mapping;
        const char *path = path_of("b.safetensors");
        write_model("b.safetensors");
        check(context, ith_mapping_open(context, path, &mapping));
        usleep(20000); /* the clock of the file system may tick only 100 times a second */
        check(context, ith_mapping_check(context, path, &mapping));
        changes[i](path);
        assert_int_equal(ith_mapping_check(context, path, &mapping), ITH_ERR_IO);
        assert_non_null(strstr(ith_context_error(context), path));
        assert_non_null(strstr(ith_context_error(context), "changed while it was in use"));
        temporary_require(unlink(path) == 0, path);
        assert_int_equal(ith_mapping_check(context, path, &mapping), ITH_ERR_IO);
        assert_non_null(strstr(ith_context_error(context), "no longer there"));
        ith_mapping_close(&mapping);
    }
}

/* ---- A header that changes while it is read ---------------------------------------------------------------------- */

enum { HEADER_BYTES = 80000, FENCE_BYTES = 65536, FENCE = 0xa5, HEADER_KINDS = 3, MANY = 40 };

/* An allocator that overwrites a file during call number `at`, and puts a fence behind each block. */
typedef struct overwriting {
    const char *path;
    const unsigned char *text;
    int calls, at;
} overwriting;

static void *allocate_and_overwrite(void *user, size_t bytes, size_t alignment)
{
    overwriting *o = user;
    unsigned char *block = NULL;
    (void)alignment;
    if (o->calls++ == o->at)
        temporary_write(o->path, o->text, HEADER_BYTES);
    const size_t room = (bytes + 63) / 64 * 64; /* the block ends up to 63 bytes before its fence */
    if (posix_memalign((void **)&block, 64, 64 + room + FENCE_BYTES))
        return NULL;
    memcpy(block, &room, sizeof room);
    memset(block + 64 + room, FENCE, FENCE_BYTES);
    return block + 64;
}

static void release_fenced(void *user, void *memory)
{
    unsigned char *block = memory;
    size_t room;
    (void)user;
    if (!block)
        return;
    memcpy(&room, block - 64, sizeof room);
    for (size_t i = 0; i < FENCE_BYTES; i++)
        assert_int_equal(block[room + i], FENCE);
    free(block - 64);
}

static void put_bytes(unsigned char **at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *(*at)++ = (unsigned char)(value >> 8 * i);
}

/* Makes a GGUF header that has `count` entries of one kind, and none of the others: numbers, arrays or tensors. The
 * names of all entries together have 70000 bytes: the reader keeps 65536, so the second pass reads them again. */
static void make_header(int kind, int count, unsigned char text[HEADER_BYTES])
{
    enum { TEXT_BYTES = 70000, U8 = 0, ARRAY = 9 };
    unsigned char *at = text;
    memset(text, 0, HEADER_BYTES);
    memcpy(at, "GGUF", 4), at += 4;
    put_bytes(&at, 3, 4);
    put_bytes(&at, kind == 2 ? (uint64_t)count : 0, 8);
    put_bytes(&at, kind == 2 ? 0 : (uint64_t)count, 8);
    for (int i = 0; i < count; i++) {
        const int length = TEXT_BYTES / count;
        put_bytes(&at, (uint64_t)length, 8);
        memset(at, 'a' + i % 26, (size_t)length), at += length;
        if (kind == 2) { /* a tensor [0] of f32 at byte 0 */
            put_bytes(&at, 1, 4), put_bytes(&at, 0, 8), put_bytes(&at, 0, 4), put_bytes(&at, 0, 8);
        } else if (kind == 1) { /* no bytes */
            put_bytes(&at, ARRAY, 4), put_bytes(&at, U8, 4), put_bytes(&at, 0, 8);
        } else {
            put_bytes(&at, U8, 4), put_bytes(&at, 7, 1);
        }
    }
}

/* A GGUF header is read twice: the first pass counts the entries, the second one fills the lists. If there are more
 * entries in the second pass, the file has changed. */
static void lists_do_not_overflow(void **state)
{
    (void)state;
    static unsigned char few[HEADER_BYTES], many[HEADER_BYTES];
    int found = 0;
    for (int kind = 0; kind < HEADER_KINDS; kind++)
        for (int at = 0; at < 12; at++) {
            overwriting o = {.path = path_of("changing.gguf"), .text = many, .at = -1};
            const ith_allocator table = {sizeof table, allocate_and_overwrite, release_fenced, &o};
            ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
            ith_context *own = NULL;
            ith_tensor_file *file = NULL;
            options.allocator = &table;
            make_header(kind, 1, few);
            make_header(kind, MANY, many);
            temporary_write(path_of("changing.gguf"), few, HEADER_BYTES);
            assert_int_equal(ith_context_create(&options, &own), ITH_OK);
            o.calls = 0, o.at = at;
            const ith_status status = ith_tensor_file_open(own, path_of("changing.gguf"), &file);
            found += status == ITH_ERR_IO && strstr(ith_context_error(own), "changed while it was read");
            ith_tensor_file_close(&file);
            ith_context_destroy(&own);
        }
    assert_true(found >= HEADER_KINDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lists_do_not_overflow, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(a_cut_tensor_is_not_read, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(a_cut_store_is_not_read, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(a_cut_misaligned_tensor_is_not_copied, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(every_change_is_found, folder_set_up, folder_tear_down),
    };
    return cmocka_run_group_tests_name("changed_files", tests, NULL, NULL);
}
