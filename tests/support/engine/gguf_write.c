/* SPDX-License-Identifier: Apache-2.0 */
#include "gguf_write.h"

#include "base/dtype.h"
#include "kernels/unpack.h"
#include "support/fixture.h"
#include "support/random.h"
#include "support/temporary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static void put(FILE *file, const void *data, size_t bytes)
{
    temporary_require(!bytes || fwrite(data, 1, bytes, file) == bytes, "a GGUF file");
}

/* Writes a number little-endian, which all machines of the tests are. */
static void put_number(FILE *file, uint64_t number, size_t bytes)
{
    put(file, &number, bytes);
}

static void put_string(FILE *file, const char *text)
{
    put_number(file, strlen(text), 8);
    put(file, text, strlen(text));
}

static void pad(FILE *file)
{
    static const char zeros[32];
    put(file, zeros, (32 - (size_t)ftell(file) % 32) % 32);
}

static uint32_t kind_of(ith_dtype type)
{
    static const uint32_t kinds[] = {
        [ITH_F32] = 0,   [ITH_F16] = 1,   [ITH_BF16] = 30, [ITH_Q4_0] = 2,   [ITH_Q4_1] = 3,
        [ITH_Q5_0] = 6,  [ITH_Q5_1] = 7,  [ITH_Q8_0] = 8,  [ITH_Q2_K] = 10,  [ITH_Q3_K] = 11,
        [ITH_Q4_K] = 12, [ITH_Q5_K] = 13, [ITH_Q6_K] = 14, [ITH_IQ4_NL] = 20};
    return kinds[type];
}

void gguf_write_tensors(const ith_tensor *tensors, int64_t count, const char *architecture, const char *path)
{
    FILE *file = fopen(path, "wb");
    temporary_require(file != NULL, path);
    put(file, "GGUF", 4);
    put_number(file, 3, 4), put_number(file, (uint64_t)count, 8), put_number(file, 1, 8);
    put_string(file, "general.architecture"), put_number(file, 8, 4), put_string(file, architecture);
    uint64_t offset = 0;
    for (int64_t i = 0; i < count; i++) {
        const ith_tensor *t = &tensors[i];
        put_string(file, t->name);
        put_number(file, (uint64_t)t->dims, 4);
        for (int d = t->dims - 1; d >= 0; d--)
            put_number(file, (uint64_t)t->shape[d], 8);
        put_number(file, kind_of(t->dtype), 4), put_number(file, offset, 8);
        offset += ((uint64_t)t->bytes + 31) / 32 * 32;
    }
    for (int64_t i = 0; i < count; i++) {
        pad(file);
        if (tensors[i].data)
            put(file, tensors[i].data, (size_t)tensors[i].bytes);
        else
            temporary_require(fseeko(file, (off_t)tensors[i].bytes, SEEK_CUR) == 0, path);
    }
    temporary_require(!fflush(file) && !ftruncate(fileno(file), ftello(file)) && !fclose(file), path);
}

void gguf_write(const package *p, const char *path)
{
    gguf_write_tensors(p->tensors, p->count, "wan", path);
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static float *numbers_of(const ith_tensor *tensor)
{
    float *numbers = malloc((size_t)ith_tensor_elements(tensor) * sizeof *numbers + 1);
    check(context, ith_tensor_to_f32(context, tensor, numbers));
    return numbers;
}

static void replace(package *p, int64_t index, ith_dtype type, void *data, int64_t bytes)
{
    free(p->owned[index]);
    p->owned[index] = data;
    p->tensors[index].data = data, p->tensors[index].dtype = type, p->tensors[index].bytes = bytes;
}

/* Packs a block as Q8_0 as the reference does: d is the largest magnitude / 127. */
static void pack_q8_0(const float *numbers, unsigned char *block)
{
    float most = 0;
    for (int i = 0; i < 32; i++)
        most = numbers[i] > most ? numbers[i] : -numbers[i] > most ? -numbers[i] : most;
    const float d = most / 127;
    ith_from_f32(block, ITH_F16, &d, 1);
    for (int i = 0; i < 32; i++) {
        const float q = d > 0 ? numbers[i] / d : 0;
        block[2 + i] = (unsigned char)(int8_t)(q < 0 ? q - 0.5f : q + 0.5f);
    }
}

/* Fills a block with random codes, and with scales that make numbers of about 1/16. */
static void pack_random(ith_dtype type, unsigned char *block, uint64_t *seed)
{
    const int64_t bytes = ith_dtype_bytes(type);
    const int64_t at = type == ITH_Q2_K ? 80 : type == ITH_Q3_K ? 108 : type == ITH_Q6_K ? 208 : 0;
    const bool has_minimum =
        type == ITH_Q4_1 || type == ITH_Q5_1 || type == ITH_Q2_K || type == ITH_Q4_K || type == ITH_Q5_K;
    const float most = type == ITH_Q6_K ? 4096 : type == ITH_IQ4_NL ? 127 : type >= ITH_Q2_K ? 512 : 16;
    const float d = random_signed(seed) / (16 * most), m = random_signed(seed) / 1024;
    for (int64_t i = 0; i < bytes; i++)
        block[i] = (unsigned char)random_bits(seed);
    if (ith_dtype_run(type) > 1)
        ith_from_f32(block + at, ITH_F16, &d, 1);
    else
        for (int64_t i = 0; i < bytes; i++)
            block[i] = (unsigned char)(block[i] % 0x38); /* no NaN */
    if (has_minimum)
        ith_from_f32(block + at + 2, ITH_F16, &m, 1);
}

void package_pack(package *p, int64_t index, ith_dtype type)
{
    uint64_t seed = (uint64_t)index + 1;
    ith_tensor *tensor = &p->tensors[index];
    const int64_t run = ith_dtype_run(type), bytes = ith_dtype_bytes(type), count = ith_tensor_elements(tensor);
    float *numbers = numbers_of(tensor);
    unsigned char *packed = malloc((size_t)(count / run * bytes));
    for (int64_t i = 0; i < count / run; i++)
        type == ITH_Q8_0 ? pack_q8_0(numbers + i * run, packed + i * bytes)
                         : pack_random(type, packed + i * bytes, &seed);
    free(numbers);
    replace(p, index, type, packed, count / run * bytes);
}

void package_add_floats(package *p, const char *name, int dims, const int64_t *shape, const float *numbers)
{
    ith_tensor *tensor = &p->tensors[p->count];
    int64_t bytes = sizeof *numbers;
    *tensor = (ith_tensor)ITH_TENSOR_INIT;
    for (int i = 0; i < dims; i++)
        bytes *= tensor->shape[i] = shape[i];
    snprintf(p->names[p->count], sizeof p->names[0], "%s", name);
    tensor->name = p->names[p->count], tensor->dims = dims;
    void *copy = malloc((size_t)bytes);
    replace(p, p->count++, ITH_F32, memcpy(copy, numbers, (size_t)bytes), bytes);
}

void package_unpack(package *p, float factor)
{
    for (int64_t i = 0; i < p->count; i++)
        if (ith_unpack_has(p->tensors[i].dtype)) {
            const int64_t count = ith_tensor_elements(&p->tensors[i]);
            float *numbers = numbers_of(&p->tensors[i]);
            for (int64_t k = 0; k < count; k++)
                numbers[k] *= factor;
            replace(p, i, ITH_F32, numbers, count * (int64_t)sizeof *numbers);
        }
}
