/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors files: tensors that are written are read back; files of other software and unusual legal layouts are
 * read. */
#include "base/context.h"
#include "base/dtype.h"
#include "files/tensor.h"
#include "support/folder_fixture.h"
#include "support/stop_at.h"

#include <ithaca/files.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <signal.h>

static ith_tensor tensor_of(const char *name, ith_dtype type, int dims, const int64_t *shape, const void *data)
{
    ith_tensor tensor = {.struct_size = sizeof(ith_tensor),
                         .name = name,
                         .dtype = type,
                         .dims = dims,
                         .data = data,
                         .bytes = ith_dtype_bytes(type)};
    for (int i = 0; i < dims; i++)
        tensor.bytes *= tensor.shape[i] = shape[i];
    return tensor;
}

static void assert_same_tensor(const ith_tensor *a, const ith_tensor *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->dims, b->dims);
    assert_memory_equal(a->shape, b->shape, sizeof a->shape[0] * (size_t)a->dims);
    assert_int_equal(a->bytes, b->bytes);
    if (a->bytes)
        assert_memory_equal(a->data, b->data, (size_t)a->bytes);
}

/* Checks that a file can be read, and has a tensor of this name. */
static void expect_tensor(const char *path, const char *name)
{
    ith_tensor_file *file = NULL;
    assert_int_equal(ith_tensor_file_open(context, path, &file), ITH_OK);
    assert_non_null(ith_tensor_file_find(file, name));
    ith_tensor_file_close(&file);
}

static void every_type_comes_back(void **state)
{
    (void)state;
    unsigned char bytes[8 * 15];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37 + 11);
    const char *names[] = {"z",   "a.weight", "naïve ☃", "quote\"back\\slash", "line\nbreak", "u8", "",
                           "i16", "i32",      "i64"};
    ith_tensor tensors[10];
    for (int i = 0; i < 10; i++)
        tensors[i] = tensor_of(names[i], (ith_dtype)(ITH_F32 + i), 3, (int64_t[]){3, 1, 5}, bytes);
    const char *keys[] = {"prompt", "b", "a"}, *values[] = {"a \"red\" circle ○", "", "2"};
    const char *path = temporary_path(folder, "types.safetensors");
    assert_int_equal(ith_tensor_file_write(context, path, tensors, 10, keys, values, 3), ITH_OK);
    ith_tensor_file *file = NULL;
    assert_int_equal(ith_tensor_file_open(context, path, &file), ITH_OK);
    assert_int_equal(ith_tensor_file_count(file), 10);
    for (int i = 0; i < 10; i++) {
        const ith_tensor *found = ith_tensor_file_find(file, names[i]);
        assert_non_null(found);
        assert_same_tensor(found, &tensors[i]);
        assert_int_equal((uintptr_t)found->data % (uintptr_t)ith_dtype_bytes(found->dtype), 0);
        assert_true(i == 0 || strcmp(ith_tensor_file_at(file, i - 1)->name, ith_tensor_file_at(file, i)->name) < 0);
    }
    assert_null(ith_tensor_file_find(file, "a.weigh"));
    for (int i = 0; i < 3; i++)
        assert_string_equal(ith_tensor_file_metadata(file, keys[i]), values[i]);
    assert_null(ith_tensor_file_metadata(file, "c"));
    ith_tensor_file_close(&file);
    assert_null(file);
    ith_tensor_file_close(&file);
    ith_tensor_file_close(NULL);
}

static void nothing_is_legal(void **state)
{
    (void)state;
    float scalar = 3.5f;
    ith_tensor tensors[] = {tensor_of("empty", ITH_F32, 3, (int64_t[]){4, 0, INT64_MAX}, NULL),
                            tensor_of("scalar", ITH_F32, 0, NULL, &scalar),
                            tensor_of("none", ITH_I64, 1, (int64_t[]){0}, NULL)};
    const char *path = temporary_path(folder, "nothing.safetensors");
    assert_int_equal(ith_tensor_file_write(context, path, tensors, 3, NULL, NULL, 0), ITH_OK);
    ith_tensor_file *file = NULL;
    assert_int_equal(ith_tensor_file_open(context, path, &file), ITH_OK);
    for (int i = 0; i < 3; i++)
        assert_same_tensor(ith_tensor_file_find(file, tensors[i].name), &tensors[i]);
    assert_int_equal(ith_tensor_elements(ith_tensor_file_find(file, "empty")), 0);
    assert_int_equal(ith_tensor_elements(ith_tensor_file_find(file, "scalar")), 1);
    ith_tensor_file_close(&file);
    assert_int_equal(ith_tensor_file_write(context, path, NULL, 0, NULL, NULL, 0), ITH_OK); /* replaces the old file */
    assert_int_equal(ith_tensor_file_open(context, path, &file), ITH_OK);
    assert_int_equal(ith_tensor_file_count(file), 0);
    assert_null(ith_tensor_file_find(file, "scalar"));
    ith_tensor_file_close(&file);
}

/* The same 5 values in each type, at every distance from an aligned address. */
static void any_address_becomes_f32(void **state)
{
    (void)state;
    const float wanted[] = {0.0f, 1.0f, -2.5f, 65504.0f, -0.125f};
    const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16, ITH_F64};
    for (int t = 0; t < 4; t++)
        for (int shift = 0; shift < 8; shift++) {
            union {
                double aligned;
                char bytes[48];
            } room, place;
            for (int i = 0; i < 5; i++)
                if (types[t] == ITH_F64)
                    memcpy(room.bytes + 8 * i, &(double){(double)wanted[i]}, 8);
            if (types[t] != ITH_F64)
                ith_from_f32(room.bytes, types[t], wanted, 5);
            int64_t shape[] = {5};
            ith_tensor tensor = tensor_of("x", types[t], 1, shape, place.bytes + shift);
            memcpy(place.bytes + shift, room.bytes, (size_t)tensor.bytes);
            float got[5], rounded[5];
            ith_to_f32(rounded, room.bytes, types[t], 5);
            assert_int_equal(ith_tensor_to_f32(context, &tensor, got), ITH_OK);
            assert_memory_equal(got, rounded, sizeof got);
        }
    ith_tensor wrong = tensor_of("ids", ITH_I32, 0, NULL, "abcd");
    float value;
    assert_int_equal(ith_tensor_to_f32(context, &wrong, &value), ITH_ERR_UNSUPPORTED);
    assert_non_null(strstr(ith_context_error(context), "ids"));
}

/* Data that are longer than the piece that is converted at a time: all of them, and a part. */
static void long_unaligned_data_becomes_f32(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static unsigned char bytes[2 * COUNT + 1];
    static float got[COUNT];
    for (int i = 0; i < COUNT; i++)
        memcpy(bytes + 1 + 2 * i, &(uint16_t){(uint16_t)(i * 13)}, 2);
    ith_tensor tensor = tensor_of("x", ITH_BF16, 1, (int64_t[]){COUNT}, bytes + ((uintptr_t)bytes % 2 == 0));
    memmove(bytes + ((uintptr_t)bytes % 2 == 0), bytes + 1, 2 * COUNT);
    assert_int_equal(ith_tensor_to_f32(context, &tensor, got), ITH_OK);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(ith_f32_bits(got[i]), (uint32_t)(uint16_t)(i * 13) << 16);
    enum { FIRST = 7 };
    assert_int_equal(ith_tensor_part_to_f32(context, "x", &tensor, FIRST, COUNT - FIRST, got), ITH_OK);
    for (int i = FIRST; i < COUNT; i++)
        assert_int_equal(ith_f32_bits(got[i - FIRST]), (uint32_t)(uint16_t)(i * 13) << 16);
}

static void files_of_other_software_are_read(void **state)
{
    (void)state;
    ith_tensor_file *file = NULL;
    assert_int_equal(ith_tensor_file_open(context, "golden/shapes/video.safetensors", &file), ITH_OK);
    assert_int_equal(ith_tensor_file_count(file), 2);
    const ith_tensor *frames = ith_tensor_file_find(file, "frames");
    assert_int_equal(frames->dtype, ITH_U8);
    assert_int_equal(frames->dims, 4);
    assert_memory_equal(frames->shape, ((int64_t[]){17, 128, 128, 3}), 32);
    int64_t sum = 0; /* compared with NumPy's sum */
    for (int64_t i = 0; i < frames->bytes; i++)
        sum += ((const unsigned char *)frames->data)[i];
    assert_int_equal(sum, 18755814);
    uint32_t first = 0;
    memcpy(&first, ith_tensor_file_find(file, "latents")->data, sizeof first);
    assert_int_equal(first, 0x3f7640ab);
    assert_non_null(strstr(ith_tensor_file_metadata(file, "prompt"), "red circle"));
    ith_tensor_file_close(&file);
    assert_int_equal(ith_tensor_file_open(context, "../models/shapes/vae/diffusion_pytorch_model.safetensors", &file),
                     ITH_OK);
    const ith_tensor *weight = ith_tensor_file_find(file, "decoder.conv_in.weight");
    assert_memory_equal(weight->shape, ((int64_t[]){64, 16, 3, 3, 3}), 40);
    ith_tensor_file_close(&file);
}

/* The number of files in the folder. */
static int files_there(void)
{
    return temporary_count(folder);
}

static void a_failed_write_leaves_what_was_there(void **state)
{
    (void)state;
    const char *path = temporary_path(folder, "kept.safetensors");
    static const char data[1 << 16];
    ith_tensor small = tensor_of("small", ITH_U8, 1, (int64_t[]){16}, data);
    ith_tensor large = tensor_of("large", ITH_U8, 1, (int64_t[]){sizeof data}, data);
    assert_int_equal(ith_tensor_file_write(context, path, &small, 1, NULL, NULL, 0), ITH_OK);
    int before = files_there();
    struct rlimit old, limit;
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    ith_status status = ith_tensor_file_write(context, path, &large, 1, NULL, NULL, 0);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(status, ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), path));
    assert_int_equal(files_there(), before);
    expect_tensor(path, "small");
}

/* A write can stop after each piece of at most 4 MiB, and then leaves the earlier file. A write that may not be stopped
 * writes the whole file. */
static void a_stopped_write_leaves_what_was_there(void **state)
{
    (void)state;
    enum { BYTES = 9 << 20, PIECES = 3 };
    const char *path = temporary_path(folder, "stopped.safetensors");
    char *data = calloc(1, BYTES);
    assert_non_null(data);
    ith_tensor small = tensor_of("small", ITH_U8, 1, (int64_t[]){16}, data);
    ith_tensor large = tensor_of("large", ITH_U8, 1, (int64_t[]){BYTES}, data);
    assert_int_equal(ith_tensor_file_write(context, path, &small, 1, NULL, NULL, 0), ITH_OK);
    const int before = files_there();
    for (int n = 1; n <= PIECES; n++) {
        stop_at(n);
        assert_int_equal(ith_tensor_file_write_stoppable(context, path, &large, 1), ITH_ERR_INTERRUPTED);
        stop_at(0);
        assert_int_equal(files_there(), before);
        expect_tensor(path, "small");
    }
    stop_at(1);
    assert_int_equal(ith_tensor_file_write(context, path, &large, 1, NULL, NULL, 0), ITH_OK);
    stop_at(0);
    expect_tensor(path, "large");
    assert_int_equal(ith_tensor_file_write_stoppable(context, path, &small, 1), ITH_OK);
    free(data);
}

static int data_sync_error;

int __real_fdatasync(int file);
int __wrap_fdatasync(int file);
int __wrap_fdatasync(int file)
{
    const int error = data_sync_error;
    data_sync_error = 0; /* the system reports a failure of the disk once */
    errno = error;
    return error ? -1 : __real_fdatasync(file);
}

/* A disk may refuse the data of a piece long before the file is complete. */
static void a_disk_that_fails_meanwhile_is_noticed(void **state)
{
    (void)state;
    enum { BYTES = 9 << 20 };
    const char *path = temporary_path(folder, "failed_disk.safetensors");
    char *data = calloc(1, BYTES);
    assert_non_null(data);
    ith_tensor small = tensor_of("small", ITH_U8, 1, (int64_t[]){16}, data);
    ith_tensor large = tensor_of("large", ITH_U8, 1, (int64_t[]){BYTES}, data);
    assert_int_equal(ith_tensor_file_write_stoppable(context, path, &small, 1), ITH_OK);
    const int before = files_there();
    data_sync_error = EIO;
    assert_int_equal(ith_tensor_file_write_stoppable(context, path, &large, 1), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), strerror(EIO)));
    assert_non_null(strstr(ith_context_error(context), path));
    assert_int_equal(files_there(), before);
    expect_tensor(path, "small");
    assert_int_equal(ith_tensor_file_write_stoppable(context, "/dev/null", &large, 1), ITH_OK);
    free(data);
}

static void places_that_cannot_be_written_are_named(void **state)
{
    (void)state;
    ith_tensor tensor = tensor_of("x", ITH_U8, 1, (int64_t[]){4}, "abcd");
    const char *missing = temporary_path(folder, "no/such/folder.safetensors");
    const struct {
        const char *path, *word;
    } places[] = {{"/dev/full", "No space"}, {folder, "folder"}, {missing, "No such file"}, {"", "its name is empty"}};
    int before = files_there();
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        assert_int_equal(ith_tensor_file_write(context, places[i].path, &tensor, 1, NULL, NULL, 0), ITH_ERR_IO);
        assert_non_null(strstr(ith_context_error(context), places[i].path));
        assert_non_null(strstr(ith_context_error(context), places[i].word));
    }
    assert_int_equal(files_there(), before);
    struct stat info;
    assert_int_equal(stat("/dev/full", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

static void links_stay_links(void **state)
{
    (void)state;
    ith_tensor tensor = tensor_of("x", ITH_U8, 1, (int64_t[]){4}, "abcd");
    const char *target = temporary_path(folder, "target.safetensors");
    const char *link = temporary_path(folder, "link.safetensors");
    temporary_write(target, "", 0);
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(ith_tensor_file_write(context, link, &tensor, 1, NULL, NULL, 0), ITH_OK);
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    ith_tensor_file *file = NULL;
    assert_int_equal(ith_tensor_file_open(context, target, &file), ITH_OK);
    ith_tensor_file_close(&file);
}

static void wrong_tensors_are_not_written(void **state)
{
    (void)state;
    const ith_tensor good = tensor_of("x", ITH_U8, 1, (int64_t[]){4}, "abcd");
    ith_tensor wrong[8][2];
    for (int i = 0; i < 8; i++)
        wrong[i][0] = wrong[i][1] = good, wrong[i][1].name = "y";
    wrong[0][1].name = "x";
    wrong[1][1].name = "__metadata__";
    wrong[2][1].name = NULL;
    wrong[3][1].bytes = 5;
    wrong[4][1].dims = ITH_MAX_DIMS + 1;
    wrong[5][1].dtype = ITH_DTYPE_NONE;
    wrong[6][1].shape[0] = -4;
    wrong[7][1].name = "\xff";
    const char *path = temporary_path(folder, "wrong.safetensors");
    for (int i = 0; i < 8; i++) {
        assert_int_equal(ith_tensor_file_write(context, path, wrong[i], 2, NULL, NULL, 0), ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), path));
        assert_int_not_equal(access(path, F_OK), 0);
    }
    wrong[5][1].dtype = ITH_Q4_0;
    assert_int_equal(ith_tensor_file_write(context, path, wrong[5], 2, NULL, NULL, 0), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "'y' is of type q4_0, which safetensors files do not have"));
    const char *keys[] = {"k", "k"}, *values[] = {"v", "w"}, *broken[] = {"v", "\xc0"};
    assert_int_equal(ith_tensor_file_write(context, path, &good, 1, keys, values, 2), ITH_ERR_ARGUMENT);
    const char *other_keys[] = {"k", "l"};
    assert_int_equal(ith_tensor_file_write(context, path, &good, 1, other_keys, broken, 2), ITH_ERR_ARGUMENT);
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_comes_back),
        cmocka_unit_test(nothing_is_legal),
        cmocka_unit_test(any_address_becomes_f32),
        cmocka_unit_test(long_unaligned_data_becomes_f32),
        cmocka_unit_test(files_of_other_software_are_read),
        cmocka_unit_test(a_failed_write_leaves_what_was_there),
        cmocka_unit_test(a_stopped_write_leaves_what_was_there),
        cmocka_unit_test(a_disk_that_fails_meanwhile_is_noticed),
        cmocka_unit_test(places_that_cannot_be_written_are_named),
        cmocka_unit_test(links_stay_links),
        cmocka_unit_test(wrong_tensors_are_not_written),
    };
    return cmocka_run_group_tests(tests, folder_set_up, folder_tear_down);
}
