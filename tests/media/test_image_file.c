/* SPDX-License-Identifier: Apache-2.0 */
/* The structure of picture files: their sizes, the place of their data, and whether they are whole. */
#include "media/image_file.h"
#include "support/guarded.h"
#include "support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Looks at a copy of the file that ends at a protected page. */
static ith_image_file look(const void *data, int64_t bytes)
{
    uint8_t *copy = guarded_new(bytes, 1, true);
    memcpy(copy, data, (size_t)bytes);
    const ith_image_file found = ith_image_file_look(copy, bytes);
    guarded_free_all();
    return found;
}

#define LOOK(text) look(text, sizeof(text) - 1)

/* Nothing behind the end of a file is read, wherever it is cut. */
static void the_end_of_a_file_is_kept(void **state)
{
    (void)state;
    static const char *const paths[] = {"grey.png",        "turned_png_6.png",   "rgb.jpg",       "turned_jpg_6.jpg",
                                        "progressive.jpg", "turned_webp_3.webp", "lossless.webp", "rgb.webp"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        size_t bytes;
        char *data = temporary_read(temporary_path("golden/pictures", paths[i]), &bytes);
        for (size_t length = 1; length <= bytes; length++)
            look(data, (int64_t)length);
        assert_true(look(data, (int64_t)bytes).whole);
        free(data);
    }
}

/* A JPEG of 2 x 3 pixels and one component, which needs table 1. before: segments between the tables and the frame.
 * scan: entropy-coded data. */
#define JPEG(before, scan)                                                                                             \
    "\xff\xd8" before "\xff\xc0\x00\x0b\x08\x00\x03\x00\x02\x01\x07\x11\x01"                                           \
    "\xff\xda\x00\x08\x01\x07\x00\x00\x3f\x00" scan "\xff\xd9"
#define SIXTEEN "0123456789abcdef"
#define TABLE SIXTEEN SIXTEEN SIXTEEN SIXTEEN

static void structures_of_jpegs_are_read(void **state)
{
    (void)state;
    static const char plain[] = JPEG("\xff\xdb\x00\x43\x01" TABLE, "123");
    ith_image_file found = LOOK(JPEG("\xff\xdb\x00\x43\x01" TABLE, "123"));
    assert_true(found.whole && found.complete && found.width == 2 && found.height == 3);
    assert_int_equal(found.data_end, sizeof plain - 1 - 2);
    /* bytes that stand for themselves, filling, and all marks of a restart end no data */
    found = LOOK(JPEG("\xff\xdb\x00\x43\x01" TABLE, "1\xff\x00"
                                                    "2\xff\xd0"
                                                    "3\xff\xd7"
                                                    "4\xff\xff"));
    assert_true(found.whole && found.complete);
    assert_int_equal(found.data_end, sizeof plain - 1 - 2 + 9);
    /* the table is missing; it is one of two, behind a table of 16 bits; there is no scan */
    found = LOOK(JPEG("\xff\xdb\x00\x43\x00" TABLE, "123"));
    assert_true(found.whole && !found.complete);
    found = LOOK(JPEG("\xff\xdb\x00\xc4\x10" TABLE TABLE "\x01" TABLE, "123"));
    assert_true(found.whole && found.complete);
    found = LOOK("\xff\xd8\xff\xc0\x00\x0b\x08\x00\x03\x00\x02\x01\x07\x11\x01\xff\xd9");
    assert_false(found.whole);
    /* these marks begin no frame, although the marks around them do: Huffman tables, reserved, arithmetic coding */
    static const char marks[] = {(char)0xc4, (char)0xc8, (char)0xcc};
    for (int i = 0; i < 3; i++) {
        char file[] = JPEG("\xff\xdb\x00\x43\x01" TABLE, "123\xff\xc4\x00\x0b\x08\x00\x09\x00\x09\x01\x07\x11\x00");
        file[sizeof file - 1 - 2 - 12] = marks[i];
        found = look(file, sizeof file - 1);
        assert_true(found.whole && found.complete && found.width == 2 && found.height == 3);
    }
}

#define VP8(width)                                                                                                     \
    "VP8 \x0a\x00\x00\x00"                                                                                             \
    "123456" width "\x00\x05\x00"
#define EXTENDED                                                                                                       \
    "VP8X\x0a\x00\x00\x00"                                                                                             \
    "\x00\x00\x00\x00\x03\x00\x00\x04\x00\x00"

/* A WebP of 4 x 5 pixels. A size that contradicts an earlier one counts, even if the last one is right. The first
 * chunk with pixels gives the data. */
static void structures_of_webps_are_read(void **state)
{
    (void)state;
    ith_image_file found = LOOK("RIFF\x28\x00\x00\x00WEBP" EXTENDED VP8("\x04"));
    assert_true(found.whole && found.agrees && found.width == 4 && found.height == 5);
    found = LOOK("RIFF\x28\x00\x00\x00WEBP" EXTENDED VP8("\x06"));
    assert_false(found.agrees);
    found = LOOK("RIFF\x3a\x00\x00\x00WEBP" EXTENDED VP8("\x06") VP8("\x06"));
    assert_true(found.whole && !found.agrees);
    assert_int_equal(found.data_begin, 30);
    assert_int_equal(found.data_end, 48);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_end_of_a_file_is_kept),
                                       cmocka_unit_test(structures_of_jpegs_are_read),
                                       cmocka_unit_test(structures_of_webps_are_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
