/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of every kind, compared with the pixels that Pillow gives for them; all orientations; files that are no
 * pictures, are cut, or are damaged. */
#include "media/image.h"
#include "media/image_file.h"
#include "media/picture.h"
#include "support/corpus.h"
#include "support/fixture.h"
#include "support/random.h"
#include "support/temporary.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PICTURES "golden/pictures/"
enum { SHORT_SIDE = 24, LONG_SIDE = 40, BYTES = SHORT_SIDE * LONG_SIDE * 3 };

/* Reads a file. */
static uint8_t *read_all(const char *path, int64_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *bytes = ftell(file);
    rewind(file);
    uint8_t *data = calloc(1, (size_t)*bytes);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)*bytes, file), (size_t)*bytes);
    fclose(file);
    return data;
}

/* Compares a picture with Pillow's. pixels: their number. JPEGs may differ a little, because the cosine transforms are
 * not the same. JPEGs of four colours may differ more, because black is rounded in another way. */
static void compare(const char *path, const uint8_t *rgb, int64_t pixels)
{
    char name[256];
    int64_t bytes;
    const bool jpeg = strstr(path, ".jpg"), cmyk = strstr(path, "cmyk");
    snprintf(name, sizeof name, "%s.rgb", path);
    uint8_t *want = read_all(name, &bytes);
    assert_int_equal(bytes, pixels * 3);
    int most = 0;
    double sum = 0;
    for (int64_t i = 0; i < bytes; i++) {
        const int difference = abs(rgb[i] - want[i]);
        most = difference > most ? difference : most;
        sum += difference;
    }
    free(want);
    const double mean = sum / (double)bytes;
    if (most > (jpeg ? 3 : 0) || (jpeg && mean > (cmyk ? 1.1 : 0.1)))
        fail_msg("%s: mean difference %.2f, largest %d", path, mean, most);
}

static void pixels_are_those_of_pillow(void **state)
{
    (void)state;
    static const char *const patterns[] = {PICTURES "*.png", PICTURES "*.jpg", PICTURES "*.webp"};
    int seen = 0;
    for (int kind = 0; kind < 3; kind++) {
        glob_t found;
        assert_int_equal(glob(patterns[kind], 0, NULL, &found), 0);
        for (size_t i = 0; i < found.gl_pathc; i++) {
            const char *path = found.gl_pathv[i];
            const bool turned = strstr(path, "turned_") && strchr("5678", strrchr(path, '.')[-1]);
            const int less = strstr(path, "odd_") ? 1 : 0; /* rows and columns */
            uint8_t *rgb;
            int64_t height, width;
            if (strstr(path, "animated"))
                continue;
            check(context, ith_image_read(context, path, &rgb, &height, &width));
            assert_int_equal(height, (turned ? LONG_SIDE : SHORT_SIDE) - less);
            assert_int_equal(width, (turned ? SHORT_SIDE : LONG_SIDE) - less);
            compare(path, rgb, height * width);
            free(rgb);
            seen++;
        }
        globfree(&found);
    }
    assert_int_equal(seen, 45);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void expect_refusal(const char *path, ith_status wanted, const char *word)
{
    uint8_t *rgb;
    int64_t height, width;
    const ith_status status = ith_image_read(context, path, &rgb, &height, &width);
    assert_null(rgb);
    if (status != wanted || !strstr(ith_context_error(context), word))
        fail_msg("%s: %s: %s lacks '%s'", path, ith_status_name(status), ith_context_error(context), word);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    expect_refusal("golden/none.png", ITH_ERR_IO, "No such file");
    expect_refusal("golden", ITH_ERR_IO, "it is not a file");
    expect_refusal("/dev/zero", ITH_ERR_IO, "it is not a file");
    expect_refusal("golden/prompts.json", ITH_ERR_FORMAT, "no PNG, JPEG or WebP");
    expect_refusal(PICTURES "animated.webp", ITH_ERR_FORMAT, "it is animated");
}

static ith_status decode(const uint8_t *data, int64_t bytes)
{
    uint8_t *rgb;
    int64_t height = 0, width = 0;
    const ith_status status = ith_image_decode(context, "it", data, bytes, &rgb, &height, &width);
    assert_true(!status == (rgb != NULL));
    for (int64_t i = 0; rgb && i < height * width * 3; i += 3)
        assert_true(rgb[i] <= 255); /* reads the memory */
    free(rgb);
    return status;
}

static void expect_unsupported(const uint8_t *data, int64_t bytes)
{
    assert_int_equal(decode(data, bytes), ITH_ERR_UNSUPPORTED);
    assert_non_null(strstr(ith_context_error(context), "libav cannot decode this form of picture"));
}

/* The place of the segment with the sizes of a JPEG's frame. */
static int64_t frame_of(const uint8_t *data)
{
    int64_t at = 2;
    while (data[at + 1] < 0xc0 || data[at + 1] > 0xc2)
        at += 2 + data[at + 2] * 256 + data[at + 3];
    return at;
}

/* JPEGs that are not damaged, but have forms that libav lacks or reads unlike libjpeg: four colours, one of which has
 * twice as many columns as the others; four colours without Adobe's segment, which libav would take for YUV; four rows
 * of brightness for one of colour, which it would interpolate in another way. */
static void forms_that_are_not_built_in_are_refused(void **state)
{
    (void)state;
    int64_t bytes;
    uint8_t *data = read_all(PICTURES "cmyk.jpg", &bytes);
    const int64_t frame = frame_of(data);
    assert_int_equal(data[frame + 11], 0x11); /* the columns and rows of the first colour */
    data[frame + 11] = 0x21;
    expect_unsupported(data, bytes);
    data[frame + 11] = 0x11;
    uint8_t *adobe = memmem(data, (size_t)bytes, "Adobe", 5);
    assert_non_null(adobe);
    assert_int_equal(decode(data, bytes), ITH_OK);
    adobe[0] = 'a';
    expect_unsupported(data, bytes);
    free(data);
    data = read_all(PICTURES "rgb.jpg", &bytes);
    data[frame_of(data) + 11] = 0x14;
    expect_unsupported(data, bytes);
    free(data);
}

/* libav reads a JPEG as libjpeg does if a sample of colour has at most four samples of brightness, at most three in one
 * column. With red, green and blue, all colours must have the same samples. */
static void few_samples_of_colour_are_refused(void **state)
{
    (void)state;
    static const uint8_t few[] = {0x14, 0x42, 0x24, 0x44}, enough[] = {0x11, 0x21, 0x12, 0x22, 0x41};
    int64_t bytes;
    uint8_t *data = read_all(PICTURES "rgb.jpg", &bytes), *first = data + frame_of(data) + 10;
    for (size_t i = 0; i < sizeof few; i++) {
        first[1] = few[i];
        assert_false(ith_image_file_look(data, bytes).usual);
    }
    for (size_t i = 0; i < sizeof enough; i++) {
        first[1] = enough[i];
        assert_true(ith_image_file_look(data, bytes).usual);
    }
    assert_memory_equal(data + 6, "JFIF", 5);
    data[6] = 'j', first[0] = 'R', first[3] = 'G', first[6] = 'B';
    for (size_t i = 0; i < sizeof enough; i++) {
        first[1] = enough[i];
        assert_int_equal(ith_image_file_look(data, bytes).usual, i == 0);
    }
    free(data);
}

static uint32_t checksum(const uint8_t *data, int count)
{
    uint32_t sum = 0xffffffff;
    for (int i = 0; i < count; i++) {
        sum ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
    }
    return ~sum;
}

/* A PNG whose header gives more pixels than its data have. */
static void sizes_that_lie_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t width, height;
        const char *word;
    } cases[] = {{40000, 40000, "pixels"},
                 {0x7fffffff, 0x7fffffff, "pixels"},
                 {8192, 8193, "8192 x 8193 pixels, and at most 67108864"},
                 {8192, 8192, "the picture is damaged"},
                 {0, 24, ""}};
    int64_t bytes;
    uint8_t *data = read_all(PICTURES "rgb.png", &bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int byte = 0; byte < 4; byte++) {
            data[16 + byte] = (uint8_t)(cases[i].width >> (24 - 8 * byte));
            data[20 + byte] = (uint8_t)(cases[i].height >> (24 - 8 * byte));
        }
        const uint32_t sum = checksum(data + 12, 17);
        for (int byte = 0; byte < 4; byte++)
            data[29 + byte] = (uint8_t)(sum >> (24 - 8 * byte));
        const ith_status status = decode(data, bytes);
        print_message("%u x %u: %s\n", cases[i].width, cases[i].height, ith_context_error(context));
        assert_int_equal(status, ITH_ERR_FORMAT);
        assert_non_null(strstr(ith_context_error(context), cases[i].word));
    }
    free(data);
}

/* A WebP whose canvas has another size than its picture: libwebp refuses it, too. The pixels of the picture can be many
 * more than the canvas announces. */
static void parts_that_disagree_are_refused(void **state)
{
    (void)state;
    int64_t bytes;
    uint8_t *data = read_all(PICTURES "alpha.webp", &bytes);
    assert_memory_equal(data + 12, "VP8X", 4);
    assert_int_equal(decode(data, bytes), ITH_OK);
    for (int byte = 24; byte < 30; byte++) { /* width and height less 1, in 3 bytes each */
        data[byte] ^= 1;
        assert_int_equal(decode(data, bytes), ITH_ERR_FORMAT);
        assert_non_null(strstr(ith_context_error(context), "different sizes"));
        data[byte] ^= 1;
    }
    free(data);
}

/* A picture that is cut off anywhere is refused, unless only bytes after the picture are missing. */
static void cut_files_are_refused(void **state)
{
    (void)state;
    static const char *const paths[] = {PICTURES "grey.png", PICTURES "rgb.jpg", PICTURES "turned_webp_6.webp"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int64_t bytes;
        uint8_t *data = read_all(paths[i], &bytes);
        for (int64_t length = 0; length < bytes - 1; length++) {
            uint8_t *cut = calloc(1, (size_t)length);
            memcpy(cut, data, (size_t)length);
            if (!decode(cut, length))
                fail_msg("%s: its first %d bytes are no picture", paths[i], (int)length);
            free(cut);
        }
        free(data);
    }
}

/* ---- Files that are cut inside ----------------------------------------------------------------------------------- */

/* A file that a test makes. */
typedef struct made_file {
    uint8_t data[8192];
    int64_t bytes;
} made_file;

static void add(made_file *file, const void *data, int64_t bytes)
{
    assert_true(file->bytes + bytes <= (int64_t)sizeof file->data);
    memcpy(file->data + file->bytes, data, (size_t)bytes);
    file->bytes += bytes;
}

static void put_number(uint8_t *at, uint32_t value, bool little)
{
    for (int byte = 0; byte < 4; byte++)
        at[byte] = (uint8_t)(value >> (little ? 8 * byte : 24 - 8 * byte));
}

static int64_t number_at(const uint8_t *at, bool little)
{
    int64_t value = 0;
    for (int byte = 0; byte < 4; byte++)
        value = value << 8 | at[little ? 3 - byte : byte];
    return value;
}

/* Adds a PNG chunk, with its checksum. */
static void add_chunk(made_file *file, const char *kind, const uint8_t *data, int64_t bytes)
{
    uint8_t number[4];
    put_number(number, (uint32_t)bytes, false);
    add(file, number, 4);
    const int64_t begin = file->bytes;
    add(file, kind, 4);
    add(file, data, bytes);
    put_number(number, checksum(file->data + begin, (int)bytes + 4), false);
    add(file, number, 4);
}

/* Makes a complete PNG with only the first `length` bytes of the compressed data. Returns false if there are no more
 * bytes. */
static bool cut_png(const uint8_t *data, int64_t bytes, int64_t length, made_file *file)
{
    made_file packed = {.bytes = 0};
    add(file, data, 8);
    for (int64_t at = 8; at < bytes; at += 12 + number_at(data + at, false)) {
        const int64_t count = number_at(data + at, false);
        const char *kind = (const char *)data + at + 4;
        if (!memcmp(kind, "IDAT", 4))
            add(&packed, data + at + 8, count);
        else if (memcmp(kind, "IEND", 4))
            add(file, data + at, count + 12);
    }
    if (length < packed.bytes)
        add_chunk(file, "IDAT", packed.data, length);
    add_chunk(file, "IEND", (const uint8_t *)"", 0);
    return length < packed.bytes;
}

/* Makes the first `length` bytes of a JPEG, and an end mark. */
static bool cut_jpeg(const uint8_t *data, int64_t bytes, int64_t length, made_file *file)
{
    if (length < bytes - 2)
        add(file, data, length);
    add(file, "\xff\xd9", 2);
    return length < bytes - 2;
}

/* Makes the first `length` bytes of a WebP, with sizes that fit. */
static bool cut_webp(const uint8_t *data, int64_t bytes, int64_t length, made_file *file)
{
    if (length < 20 || length >= bytes)
        return length < 20;
    add(file, data, length);
    for (int64_t at = 12; at + 8 <= length; at += 8 + (number_at(data + at + 4, true) + 1) / 2 * 2)
        if (at + 8 + number_at(data + at + 4, true) > length)
            put_number(file->data + at + 4, (uint32_t)(length - at - 8), true);
    if (length % 2)
        add(file, "", 1);
    put_number(file->data + 4, (uint32_t)(file->bytes - 8), true);
    return true;
}

/* Whether a made file is refused, or read with the pixels of `whole`. */
static bool is_refused_or_same(const made_file *file, const uint8_t *whole)
{
    uint8_t *rgb;
    int64_t height, width;
    const ith_status status = ith_image_decode(context, "it", file->data, file->bytes, &rgb, &height, &width);
    const bool good = status ? status == ITH_ERR_FORMAT && !strchr(ith_context_error(context), '\n')
                             : height == SHORT_SIDE && width == LONG_SIDE && !memcmp(rgb, whole, BYTES);
    free(rgb);
    return good;
}

typedef bool cut_function(const uint8_t *data, int64_t bytes, int64_t length, made_file *file);

/* The number of cuts of a picture after which it is read with other pixels. */
static int wrong_cuts(const char *path, cut_function *cut)
{
    int64_t bytes, height, width, length = 0, last = 0;
    int wrong = 0;
    uint8_t *data = read_all(path, &bytes), *whole;
    check(context, ith_image_read(context, path, &whole, &height, &width));
    for (;; length++) {
        made_file file = {.bytes = 0};
        if (!cut(data, bytes, length, &file))
            break;
        if (file.bytes && !is_refused_or_same(&file, whole))
            wrong++, last = length;
    }
    if (wrong)
        print_message("%s: %d of %d cuts give other pixels, the last at byte %d\n", path, wrong, (int)length,
                      (int)last);
    assert_true(length > 100);
    free(data);
    free(whole);
    return wrong;
}

/* Pictures whose data end early, although sizes, checksums and end marks are right. */
static void pictures_cut_inside_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        cut_function *cut;
    } cases[] = {{PICTURES "grey.png", cut_png},         {PICTURES "palette.png", cut_png},
                 {PICTURES "one_bit.png", cut_png},      {PICTURES "interlaced.png", cut_png},
                 {PICTURES "rgb.jpg", cut_jpeg},         {PICTURES "full.jpg", cut_jpeg},
                 {PICTURES "progressive.jpg", cut_jpeg}, {PICTURES "grey.jpg", cut_jpeg},
                 {PICTURES "cmyk.jpg", cut_jpeg},        {PICTURES "turned_jpg_1.jpg", cut_jpeg},
                 {PICTURES "rgb.webp", cut_webp},        {PICTURES "lossless.webp", cut_webp},
                 {PICTURES "alpha.webp", cut_webp}};
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        wrong += wrong_cuts(cases[i].path, cases[i].cut);
    assert_int_equal(wrong, 0);
}

/* Makes a grey PNG of SHORT_SIDE x LONG_SIDE whose data have the first `count` bytes of its rows, in a complete
 * stream. */
static void write_rows(int64_t count, made_file *file)
{
    uint8_t header[13] = {0}, stream[2048] = {0x78, 0x01, 1};
    put_number(header, LONG_SIDE, false);
    put_number(header + 4, SHORT_SIDE, false);
    header[8] = 8;
    for (int i = 0; i < 2; i++)
        stream[3 + i] = (uint8_t)(count >> 8 * i), stream[5 + i] = (uint8_t)~stream[3 + i];
    put_number(stream + 7 + count, (uint32_t)(count << 16 | 1), false); /* all bytes are 0: no filter, black */
    add(file, "\x89PNG\r\n\x1a\n", 8);
    add_chunk(file, "IHDR", header, sizeof header);
    add_chunk(file, "IDAT", stream, count + 11);
    add_chunk(file, "IEND", (const uint8_t *)"", 0);
}

/* A PNG whose compressed data are complete, but hold fewer rows than its header says. */
static void pictures_without_all_rows_are_refused(void **state)
{
    (void)state;
    const int64_t whole = (LONG_SIDE + 1) * SHORT_SIDE;
    for (int64_t count = whole; count >= 0; count--) {
        made_file file = {.bytes = 0};
        write_rows(count, &file);
        const ith_status status = decode(file.data, file.bytes);
        if (status != (count < whole ? ITH_ERR_FORMAT : ITH_OK))
            fail_msg("%d of %d bytes: %s", (int)count, (int)whole, ith_status_name(status));
    }
}

/* Writes EXIF data with two entries: the maker, and an orientation with a type: 3 is SHORT, as the standard demands; 4
 * is LONG. Returns their length. */
static int64_t write_exif(bool little, bool marked, int type, int value, uint8_t out[64])
{
    enum { ENTRY = 12, VALUE = 8 };
    static const uint8_t headers[2][8] = {{'M', 'M', 0, 42, 0, 0, 0, 8}, {'I', 'I', 42, 0, 8, 0, 0, 0}};
    const int low = little ? 0 : 1; /* the place of the low byte in a 16-bit number */
    uint8_t *tiff = out + (marked ? 6 : 0), *orientation = tiff + 8 + 2 + ENTRY;
    memset(out, 0, 64);
    memcpy(out, "Exif\0\0", 6);
    memcpy(tiff, headers[little], 8);
    tiff[8 + low] = 2;                                                 /* entries */
    tiff[10 + low] = 0x0f, tiff[10 + !low] = 0x01, tiff[12 + low] = 2; /* the maker, as text */
    orientation[low] = 0x12, orientation[!low] = 0x01, orientation[2 + low] = (uint8_t)type;
    put_number(orientation + 4, 1, little);
    if (type == 4)
        put_number(orientation + VALUE, (uint32_t)value, little);
    else
        orientation[VALUE + low] = (uint8_t)value;
    return orientation + ENTRY + 4 - out;
}

/* An orientation is of type SHORT or LONG, in either byte order, with or without the mark of EXIF. Others are not read,
 * as by Pillow. */
static void orientations_are_whole_numbers(void **state)
{
    (void)state;
    static const int types[] = {3, 4, 1}; /* SHORT, LONG, BYTE */
    for (int i = 0; i < 12; i++) {
        const int type = types[i / 4];
        made_file file = {.bytes = 0};
        uint8_t exif[64], *rgb;
        int64_t height, width;
        write_rows((LONG_SIDE + 1) * SHORT_SIDE, &file);
        file.bytes -= 12; /* removes the end chunk */
        add_chunk(&file, "eXIf", exif, write_exif(i % 2, i % 4 / 2, type, 6, exif));
        add_chunk(&file, "IEND", (const uint8_t *)"", 0);
        check(context, ith_image_decode(context, "it", file.data, file.bytes, &rgb, &height, &width));
        free(rgb);
        if (height != (type != 1 ? LONG_SIDE : SHORT_SIDE) || width != (type != 1 ? SHORT_SIDE : LONG_SIDE))
            fail_msg("type %d, case %d: %d x %d", type, i, (int)height, (int)width);
    }
}

/* Orientations are numbers from 1 to 8; others turn nothing. Of several EXIF data of a PNG the last ones count, as in
 * Pillow. */
static void orientations_go_from_1_to_8(void **state)
{
    (void)state;
    for (int value = 0; value <= 9; value++) {
        made_file file = {.bytes = 0};
        uint8_t exif[64];
        write_rows((LONG_SIDE + 1) * SHORT_SIDE, &file);
        file.bytes -= 12; /* removes the end chunk */
        add_chunk(&file, "eXIf", exif, write_exif(true, false, 3, 5, exif));
        add_chunk(&file, "eXIf", exif, write_exif(true, false, 3, value, exif));
        add_chunk(&file, "IEND", (const uint8_t *)"", 0);
        assert_int_equal(ith_image_file_look(file.data, file.bytes).orientation, value >= 1 && value <= 8 ? value : 1);
    }
}

/* Makes a PNG with EXIF data that have an orientation of this type (0: it has none), and a text chunk. Returns the
 * status of its decoding, and whether it was turned in *turned. */
static ith_status decode_with_text(int exif_type, const char *chunk, const char *text, int64_t text_bytes, bool *turned)
{
    made_file file = {.bytes = 0};
    uint8_t exif[64], *rgb;
    int64_t height = 0, width = 0;
    write_rows((LONG_SIDE + 1) * SHORT_SIDE, &file);
    file.bytes -= 12; /* removes the end chunk */
    if (exif_type)
        add_chunk(&file, "eXIf", exif, write_exif(true, false, exif_type, 1, exif));
    add_chunk(&file, chunk, (const uint8_t *)text, text_bytes);
    add_chunk(&file, "IEND", (const uint8_t *)"", 0);
    const ith_status status = ith_image_decode(context, "it", file.data, file.bytes, &rgb, &height, &width);
    free(rgb);
    *turned = height == LONG_SIDE;
    return status;
}

/* If EXIF data have no orientation, the orientation in XMP data counts, as in Pillow. The cases were compared with
 * ImageOps.exif_transpose. */
static void xmp_turns_without_exif(void **state)
{
    (void)state;
#define TEXT(text) text, sizeof text - 1
#define KEY "XML:com.adobe.xmp\0"
    static const struct {
        int exif_type;
        const char *chunk, *text;
        int64_t bytes;
        bool turned;
    } cases[] = {
        {0, "iTXt", TEXT(KEY "\0\0\0\0<a tiff:Orientation=\"6\"/>"), true},
        {0, "iTXt", TEXT(KEY "\0\0en\0key\0<tiff:Orientation>8</tiff:Orientation>"), true},
        {0, "tEXt", TEXT(KEY "<a tiff:Orientation=\"5\"/>"), true},
        {0, "iTXt", TEXT(KEY "\0\0\0\0<a tiff:Orientation=\"3\"/>"), false},
        {0, "iTXt", TEXT(KEY "\0\0\0\0<a tiff:Orientation=\"9\" tiff:Orientation=\"6\"/>"), false},
        {0, "iTXt", TEXT(KEY "\0\0\0\0<a tiff:Orientation='9' tiff:Orientation=\"6\"/>"), true},
        {0, "iTXt", TEXT(KEY "\0\0<a tiff:Orientation=\"6\"/>"), false},
        {0, "iTXt", TEXT(KEY "\0\0\0\0<a tiff:Orientation:6 />"), false},
        {0, "iTXt", TEXT("comment\0\0\0\0\0<a tiff:Orientation=\"6\"/>"), false},
        {0, "iTXt", TEXT(KEY "\0\0\0\0<a tiff:Orientation=\""), false},
        {3, "iTXt", TEXT(KEY "\0\0\0\0<a tiff:Orientation=\"6\"/>"), false},
        {1, "iTXt", TEXT(KEY "\0\0\0\0<a tiff:Orientation=\"6\"/>"), false},
        {3, "zTXt", TEXT(KEY "\0packed"), false},
    };
    bool turned;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check(context, decode_with_text(cases[i].exif_type, cases[i].chunk, cases[i].text, cases[i].bytes, &turned));
        if (turned != cases[i].turned)
            fail_msg("case %d", (int)i);
    }
    assert_int_equal(decode_with_text(0, "zTXt", TEXT(KEY "\0packed"), &turned), ITH_ERR_UNSUPPORTED);
    assert_non_null(strstr(ith_context_error(context), "XMP data are compressed"));
    assert_int_equal(decode_with_text(0, "iTXt", TEXT(KEY "\1\0\0\0packed"), &turned), ITH_ERR_UNSUPPORTED);
#undef KEY
#undef TEXT
}

/* A JPEG's segment and a WebP's chunk with XMP data. */
static void xmp_turns_jpeg_and_webp(void **state)
{
    (void)state;
    static const char jpeg[] = "http://ns.adobe.com/xap/1.0/\0<a tiff:Orientation=\"6\"/>";
    static const char webp[] = "<a tiff:Orientation=\"8\"/>";
    int64_t bytes;
    uint8_t *data = read_all(PICTURES "rgb.jpg", &bytes);
    made_file file = {.bytes = 0};
    add(&file, data, 2);
    add(&file, (uint8_t[]){0xff, 0xe1, 0, (uint8_t)(sizeof jpeg - 1 + 2)}, 4);
    add(&file, (const uint8_t *)jpeg, sizeof jpeg - 1);
    add(&file, data + 2, bytes - 2);
    assert_int_equal(ith_image_file_look(file.data, file.bytes).orientation, 6);
    free(data);
    data = read_all(PICTURES "rgb.webp", &bytes);
    file = (made_file){.bytes = 0};
    add(&file, data, 12);
    add(&file, (const uint8_t *)"XMP \x19\0\0\0", 8);
    add(&file, (const uint8_t *)webp, sizeof webp); /* with a byte of filling */
    add(&file, (const uint8_t *)"XMP \x19\0\0\0<a tiff:Orientation=\"6\"/>",
        8 + sizeof webp); /* the first one counts */
    add(&file, data + 12, bytes - 12);
    file.data[4] = (uint8_t)(file.bytes - 8), file.data[5] = (uint8_t)((file.bytes - 8) >> 8);
    assert_int_equal(ith_image_file_look(file.data, file.bytes).orientation, 8);
    free(data);
}

/* Adds a segment of a JPEG with an orientation. */
static void add_exif_segment(made_file *file, int orientation)
{
    uint8_t exif[64];
    const int64_t bytes = write_exif(true, true, 3, orientation, exif);
    add(file, (uint8_t[]){0xff, 0xe1, 0, (uint8_t)(bytes + 2)}, 4);
    add(file, exif, bytes);
}

/* A JPEG with two segments of EXIF data is turned as the first one says, and the decoder sees neither of them. */
static void the_first_orientation_counts(void **state)
{
    (void)state;
    int64_t bytes;
    uint8_t *data = read_all(PICTURES "rgb.jpg", &bytes);
    for (int first = 3; first <= 6; first += 3) {
        made_file file = {.bytes = 0};
        add(&file, data, 2);
        add_exif_segment(&file, first);
        add_exif_segment(&file, 9 - first);
        add(&file, data + 2, bytes - 2);
        ith_image_file found = ith_image_file_look(file.data, file.bytes);
        assert_int_equal(found.orientation, first);
        assert_int_equal(found.exif_count, 2);
        ith_image_file_hide(&found, file.data);
        found = ith_image_file_look(file.data, file.bytes);
        assert_true(found.whole && found.orientation == 1 && found.exif_count == 0);
    }
    free(data);
}

/* Copies a JPEG, and adds an Adobe segment that says RGB. */
static made_file with_adobe(const char *path)
{
    int64_t bytes;
    made_file file = {.bytes = 0};
    uint8_t *data = read_all(path, &bytes);
    add(&file, data, 20); /* the first mark, and the segment of JFIF */
    assert_memory_equal(data + 6, "JFIF", 5);
    add(&file,
        "\xff\xee\0\x0e"
        "Adobe\0\x64\0\0\0\0\0",
        16);
    add(&file, data + 20, bytes - 20);
    free(data);
    return file;
}

/* JFIF's segment counts more than Adobe's. Without it, the picture is RGB, which libav reads only if there are equally
 * many samples of all colours. */
static void jfif_counts_more_than_adobe(void **state)
{
    (void)state;
    int64_t height, width;
    uint8_t *rgb, *plain;
    made_file file = with_adobe(PICTURES "full.jpg");
    check(context, ith_image_read(context, PICTURES "full.jpg", &plain, &height, &width));
    check(context, ith_image_decode(context, "it", file.data, file.bytes, &rgb, &height, &width));
    assert_memory_equal(rgb, plain, BYTES);
    free(rgb);
    file.data[6] = 'j';
    check(context, ith_image_decode(context, "it", file.data, file.bytes, &rgb, &height, &width));
    assert_memory_not_equal(rgb, plain, BYTES);
    free(rgb);
    free(plain);
    file = with_adobe(PICTURES "rgb.jpg");
    assert_int_equal(decode(file.data, file.bytes), ITH_OK);
    file.data[6] = 'j';
    expect_unsupported(file.data, file.bytes);
}

/* A bit of VP8 says whether its numbers need to be limited. It changes no pixel of a WebP in libwebp. The first byte of
 * its compressed data has the bit in such a place that all other numbers stay the same. */
static void limits_of_numbers_change_no_pixel(void **state)
{
    enum { FIRST_BYTE = 30, LIMIT = 0x40 };
    (void)state;
    int64_t bytes, height, width;
    uint8_t *rgb, *plain, *data = read_all(PICTURES "rgb.webp", &bytes);
    check(context, ith_image_decode(context, "it", data, bytes, &plain, &height, &width));
    data[FIRST_BYTE] ^= LIMIT;
    check(context, ith_image_decode(context, "it", data, bytes, &rgb, &height, &width));
    assert_memory_equal(rgb, plain, BYTES);
    free(rgb);
    free(plain);
    free(data);
}

/* libav takes the comment "CS=ITU601" of a JPEG for a range of its numbers from 16 to 235. libjpeg does not. */
static void a_comment_changes_no_pixel(void **state)
{
    (void)state;
    int64_t bytes, height, width;
    uint8_t *rgb, *plain, *data = read_all(PICTURES "rgb.jpg", &bytes);
    made_file file = {.bytes = 0};
    add(&file, data, 2);
    add(&file,
        "\xff\xfe\0\x0c"
        "CS=ITU601",
        14);
    add(&file, data + 2, bytes - 2);
    check(context, ith_image_decode(context, "it", data, bytes, &plain, &height, &width));
    check(context, ith_image_decode(context, "it", file.data, file.bytes, &rgb, &height, &width));
    assert_memory_equal(rgb, plain, BYTES);
    free(rgb);
    free(plain);
    free(data);
}

static void damaged_files_do_no_harm(void **state)
{
    (void)state;
    static const char *const paths[] = {PICTURES "palette.png", PICTURES "turned_jpg_6.jpg", PICTURES "rgb.webp",
                                        PICTURES "turned_webp_3.webp", PICTURES "cmyk.jpg"};
    uint64_t random = 7;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int64_t bytes;
        uint8_t *data = read_all(paths[i], &bytes);
        uint8_t *damaged = calloc(1, (size_t)bytes);
        for (int trial = 0; trial < 300; trial++) {
            memcpy(damaged, data, (size_t)bytes);
            for (int change = 0; change <= trial % 4; change++)
                damaged[random_below(&random, trial % 2 ? (uint32_t)bytes : 64)] = (uint8_t)random_below(&random, 256);
            decode(damaged, bytes);
        }
        free(damaged);
        free(data);
    }
}

static ith_status probe_image(ith_context *own, const char *path)
{
    uint8_t *rgb;
    int64_t height, width;
    const ith_status status = ith_image_read(own, path, &rgb, &height, &width);
    free(rgb);
    return status;
}

/* Files that tools/fuzz_image.c has found, and files that tools/make_picture_golden.py breaks. */
static void found_files_do_no_harm(void **state)
{
    (void)state;
    corpus_replay("media/corpus", probe_image, 30);
}

/* A picture is written with squares for pixels, and read back. */
static void pictures_are_written_with_squares(void **state)
{
    (void)state;
    enum { ROWS = 3, COLUMNS = 5 };
    uint8_t pixels[ROWS][COLUMNS][3], *rgb = NULL;
    char *folder = temporary_folder();
    for (int i = 0; i < ROWS * COLUMNS * 3; i++)
        pixels[i / 3 / COLUMNS][i / 3 % COLUMNS][i % 3] = (uint8_t)(i * 37);
    for (int scale = 1; scale <= 4; scale += 3) {
        const char *path = temporary_path(folder, "small.png");
        int64_t height = 0, width = 0;
        check(context, ith_picture_write(context, path, pixels[0][0], ROWS, COLUMNS, scale));
        check(context, ith_image_read(context, path, &rgb, &height, &width));
        assert_true(height == ROWS * scale && width == COLUMNS * scale);
        for (int64_t y = 0; y < height; y++)
            for (int64_t x = 0; x < width; x++)
                assert_memory_equal(rgb + (y * width + x) * 3, pixels[y / scale][x / scale], 3);
        free(rgb);
    }
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pixels_are_those_of_pillow),
                                       cmocka_unit_test(pictures_are_written_with_squares),
                                       cmocka_unit_test(other_files_are_refused),
                                       cmocka_unit_test(sizes_that_lie_are_refused),
                                       cmocka_unit_test(orientations_are_whole_numbers),
                                       cmocka_unit_test(orientations_go_from_1_to_8),
                                       cmocka_unit_test(few_samples_of_colour_are_refused),
                                       cmocka_unit_test(xmp_turns_without_exif),
                                       cmocka_unit_test(xmp_turns_jpeg_and_webp),
                                       cmocka_unit_test(the_first_orientation_counts),
                                       cmocka_unit_test(jfif_counts_more_than_adobe),
                                       cmocka_unit_test(limits_of_numbers_change_no_pixel),
                                       cmocka_unit_test(parts_that_disagree_are_refused),
                                       cmocka_unit_test(cut_files_are_refused),
                                       cmocka_unit_test(pictures_cut_inside_are_refused),
                                       cmocka_unit_test(pictures_without_all_rows_are_refused),
                                       cmocka_unit_test(a_comment_changes_no_pixel),
                                       cmocka_unit_test(damaged_files_do_no_harm),
                                       cmocka_unit_test(found_files_do_no_harm),
                                       cmocka_unit_test(forms_that_are_not_built_in_are_refused)};
    return cmocka_run_group_tests_name("image", tests, context_set_up, context_tear_down);
}
