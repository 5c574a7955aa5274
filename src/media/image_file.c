/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over the parts of a PNG (chunks), a JPEG (segments) or a WebP (RIFF chunks), and finds the EXIF data and the
 * XMP data. EXIF data are a TIFF directory, whose tag 0x0112 is the orientation; XMP data are XML text. Every length is
 * checked against the end of the file. */
#include "image_file.h"

#include <libavutil/crc.h>

#include <string.h>

/* Bytes of a file. */
typedef struct span {
    const uint8_t *data;
    int64_t bytes;
} span;

/* Reads a number of `bytes` bytes at an offset. Returns 0 if it does not lie within the span. */
static uint32_t number(span s, int64_t at, int bytes, bool little)
{
    uint32_t value = 0;
    if (at < 0 || at > s.bytes - bytes)
        return 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | s.data[at + (little ? bytes - 1 - i : i)];
    return value;
}

static bool begins(span s, int64_t at, const char *text, int64_t length)
{
    return at >= 0 && at <= s.bytes - length && !memcmp(s.data + at, text, (size_t)length);
}

/* The part of a span from an offset on, of at most `bytes` bytes. */
static span part(span s, int64_t at, int64_t bytes)
{
    if (at > s.bytes)
        return (span){s.data, 0};
    return (span){s.data + at, bytes < s.bytes - at ? bytes : s.bytes - at};
}

/* Reads the orientation from EXIF data; 0 if it has none. */
static int read_exif(span exif)
{
    enum { TAG = 0x0112, SHORT = 3, LONG = 4, ENTRY_BYTES = 12 };
    if (begins(exif, 0, "Exif\0\0", 6))
        exif = part(exif, 6, exif.bytes);
    const bool little = begins(exif, 0, "II*\0", 4);
    if (!little && !begins(exif, 0, "MM\0*", 4))
        return 0;
    const int64_t directory = number(exif, 4, 4, little), count = number(exif, directory, 2, little);
    for (int64_t i = 0; i < count; i++) {
        const int64_t entry = directory + 2 + i * ENTRY_BYTES;
        const uint32_t type = number(exif, entry + 2, 2, little);
        const uint32_t value = number(exif, entry + 8, type == LONG ? 4 : 2, little);
        if (number(exif, entry, 2, little) == TAG)
            return (type == SHORT || type == LONG) && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 0;
}

/* Reads the orientation from XMP data; 0 if it has none. It is the digit behind the first tiff:Orientation=" or
 * tiff:Orientation>, as in Pillow. */
static int read_xmp(span xmp)
{
    static const char name[] = "tiff:Orientation";
    enum { NAME = sizeof name - 1 };
    for (int64_t at = 0; at < xmp.bytes - NAME; at++) {
        if (!begins(xmp, at, name, NAME))
            continue;
        const int64_t digit = begins(xmp, at + NAME, "=\"", 2) ? at + NAME + 2 : at + NAME + 1;
        const uint32_t value = number(xmp, digit, 1, false) - '0';
        if ((digit == at + NAME + 2 || begins(xmp, at + NAME, ">", 1)) && value <= 9)
            return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 0;
}

/* Reads the XMP data in a text chunk of a PNG, if it has them. In iTXt the key is followed by two numbers (whether the
 * text is compressed, and how), the language and the translated key. zTXt is compressed. */
static void note_text(span chunk, const char *kind, ith_image_file *out)
{
    static const char key[] = "XML:com.adobe.xmp";
    int64_t at = sizeof key; /* with the 0 at its end */
    if (!begins(chunk, 0, key, sizeof key))
        return;
    bool compressed = !strcmp(kind, "zTXt");
    if (!strcmp(kind, "iTXt")) {
        compressed = number(chunk, at, 1, false);
        at += 2;
        for (int i = 0; i < 2 && at <= chunk.bytes; i++) {
            const uint8_t *end = at < chunk.bytes ? memchr(chunk.data + at, 0, (size_t)(chunk.bytes - at)) : NULL;
            if (!end)
                return;
            at = end + 1 - chunk.data;
        }
    }
    out->xmp_compressed = compressed;
    out->xmp_orientation = compressed ? 0 : read_xmp(part(chunk, at, chunk.bytes));
}

static void hide(int64_t name, ith_image_file *out)
{
    if (out->hidden_count < ITH_IMAGE_MOST_HIDDEN)
        out->hidden_names[out->hidden_count++] = name;
}

/* Notes EXIF data and the place of their name. The first EXIF data give the orientation, but in a PNG the last ones do,
 * as in Pillow. */
static void note_exif(int64_t name, span exif, ith_image_file *out)
{
    if (!out->exif_count || out->kind == ITH_IMAGE_PNG)
        out->orientation = read_exif(exif);
    out->exif_count++;
    hide(name, out);
}

static void look_at_png(span file, ith_image_file *out)
{
    out->width = number(file, 16, 4, false), out->height = number(file, 20, 4, false);
    for (int64_t at = 8; at <= file.bytes - 12;) {
        const int64_t length = number(file, at, 4, false);
        if (length > file.bytes - 12 - at)
            return;
        if (begins(file, at + 4, "IDAT", 4))
            out->data_begin = at, out->data_end = at + 8 + length;
        if (begins(file, at + 4, "eXIf", 4))
            note_exif(at + 4, part(file, at + 8, length), out);
        static const char *const texts[] = {"tEXt", "zTXt", "iTXt"};
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            if (begins(file, at + 4, texts[i], 4))
                note_text(part(file, at + 8, length), texts[i], out);
        if (begins(file, at + 4, "IEND", 4)) {
            out->whole = true;
            return;
        }
        at += 12 + length;
    }
}

/* The offset of the marker that ends entropy-coded data; the end of the file if there is none. */
static int64_t end_of_scan(span file, int64_t at)
{
    while (at < file.bytes - 1) {
        const uint8_t *found = memchr(file.data + at, 0xff, (size_t)(file.bytes - 1 - at));
        if (!found)
            break;
        const uint8_t marker = found[1];
        at = found - file.data;
        if (marker != 0 && marker != 0xff && (marker < 0xd0 || marker > 0xd7))
            return at;
        at += marker == 0xff ? 1 : 2;
    }
    return file.bytes;
}

/* Whether a segment begins a frame and holds its size. */
static bool begins_frame(uint32_t marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/* The quantisation tables and the coefficients of a JPEG that have been found so far, one bit each. */
typedef struct coverage {
    bool progressive;
    uint32_t count, ids[4];  /* the components of the frame */
    uint32_t needed, tables; /* quantisation tables that the components need; tables that were found */
    uint64_t seen[4];        /* coefficients of each component that were found */
} coverage;

/* Reads the components from the head of a frame. */
static void begin_coverage(span file, int64_t at, uint32_t marker, coverage *c)
{
    const uint32_t count = number(file, at + 9, 1, false);
    *c = (coverage){.progressive = marker == 0xc2, .count = count < 4 ? count : 4, .tables = c->tables};
    for (uint32_t i = 0; i < c->count; i++) {
        c->ids[i] = number(file, at + 10 + 3 * i, 1, false);
        c->needed |= UINT32_C(1) << (number(file, at + 12 + 3 * i, 1, false) & 15);
    }
}

/* Notes the quantisation tables of a segment that ends at `end`. */
static void note_tables(span file, int64_t at, int64_t end, coverage *c)
{
    while (at < end) {
        const uint32_t head = number(file, at, 1, false);
        c->tables |= UINT32_C(1) << (head & 15);
        at += 1 + (head >> 4 ? 128 : 64);
    }
}

/* Notes the coefficients of a scan. A scan of a progressive JPEG counts only if it holds their last bit. */
static void cover(span file, int64_t at, coverage *c)
{
    const uint32_t count = number(file, at + 4, 1, false);
    const int64_t band = at + 5 + 2 * count;
    const uint32_t first = number(file, band, 1, false), last = number(file, band + 1, 1, false);
    const bool refined = !(number(file, band + 2, 1, false) & 15);
    uint64_t seen = !c->progressive ? UINT64_MAX : 0;
    for (uint32_t k = first; c->progressive && refined && k <= last && k < 64; k++)
        seen |= UINT64_C(1) << k;
    for (uint32_t i = 0; i < count && i < 4; i++)
        for (uint32_t j = 0; j < c->count; j++)
            if (number(file, at + 5 + 2 * i, 1, false) == c->ids[j])
                c->seen[j] |= seen;
}

static bool is_complete(const coverage *c)
{
    if (c->needed & ~c->tables)
        return false;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->seen[i] != UINT64_MAX)
            return false;
    return true;
}

/* The colours of a JPEG. */
typedef struct colours {
    bool jfif;             /* it has the segment of JFIF, whose colours are grey or YCbCr */
    int64_t adobe;         /* the place of the name of Adobe's segment; 0: there is none */
    uint32_t transform;    /* of Adobe's segment: 0 RGB or CMYK, 1 YCbCr, 2 YCCK */
    uint32_t count;        /* components */
    bool named_rgb;        /* which are called R, G and B */
    uint32_t across, down; /* samples of the first component for one of the second */
} colours;

static void note_components(span file, int64_t at, colours *c)
{
    const uint32_t first = number(file, at + 11, 1, false), second = number(file, at + 14, 1, false);
    c->count = number(file, at + 9, 1, false);
    c->named_rgb = begins(file, at + 10, "R", 1) && begins(file, at + 13, "G", 1) && begins(file, at + 16, "B", 1);
    c->across = second >> 4 ? (first >> 4) / (second >> 4) : 0;
    c->down = second & 15 ? (first & 15) / (second & 15) : 0;
}

/* Whether libav reads the colours as libjpeg does. It takes four components without Adobe's segment for YUV with an
 * alpha channel, and RGB with fewer samples of some colours for YUV. If four rows, or more than four samples, of
 * brightness have one of colour, it interpolates in another way. */
static bool are_usual(const colours *c)
{
    const uint32_t samples = c->across * c->down;
    const bool rgb = !c->jfif && (c->adobe ? c->transform == 0 : c->named_rgb);
    if (c->count == 4)
        return c->adobe > 0;
    return c->count != 3 || (rgb ? samples <= 1 : samples <= 4 && c->down < 4);
}

/* Reads a segment, from `at` to `next`, and records the facts about the picture's colours that it holds. */
static void note_colours(span file, uint32_t marker, int64_t at, int64_t next, colours *c)
{
    enum { APP0 = 0xe0, APP14 = 0xee };
    if (begins_frame(marker))
        note_components(file, at, c);
    if (marker == APP0 && next - at >= 16 && begins(file, at + 4, "JFIF", 5))
        c->jfif = true;
    if (marker == APP14 && next - at >= 16 && begins(file, at + 4, "Adobe", 5))
        c->adobe = at + 4, c->transform = number(file, at + 15, 1, false);
}

/* As in libjpeg, JFIF's segment counts more than Adobe's. */
static void end_colours(const colours *c, ith_image_file *out)
{
    out->usual = are_usual(c);
    if (c->jfif && c->adobe && c->count == 3)
        hide(c->adobe, out);
}

static void look_at_jpeg(span file, ith_image_file *out)
{
    enum { APP1 = 0xe1, END = 0xd9, SCAN, TABLES };
    static const char xmp_name[] = "http://ns.adobe.com/xap/1.0/";
    coverage covered = {.count = 0};
    colours found = {.count = 0};
    for (int64_t at = 2; at <= file.bytes - 2;) {
        const uint32_t marker = number(file, at + 1, 1, false);
        if (file.data[at] != 0xff)
            return;
        if (marker == 0xff) { /* a byte of filling */
            at++;
            continue;
        }
        if (marker == END) {
            out->whole = out->data_end > 0, out->complete = is_complete(&covered);
            end_colours(&found, out);
            return;
        }
        const int64_t length = number(file, at + 2, 2, false), next = at + 2 + (length < 2 ? 2 : length);
        note_colours(file, marker, at, next, &found);
        if (begins_frame(marker)) {
            out->height = number(file, at + 5, 2, false), out->width = number(file, at + 7, 2, false);
            begin_coverage(file, at, marker, &covered);
        }
        if (marker == APP1 && begins(file, at + 4, "Exif\0\0", 6))
            note_exif(at + 4, part(file, at + 4, length - 2), out);
        if (marker == APP1 && begins(file, at + 4, xmp_name, sizeof xmp_name))
            out->xmp_orientation = read_xmp(part(file, at + 4, length - 2));
        if (marker == TABLES)
            note_tables(file, at + 4, next, &covered);
        if (marker == SCAN) {
            cover(file, at, &covered);
            out->data_begin = at, out->data_end = end_of_scan(file, next);
        }
        at = marker == SCAN ? out->data_end : next;
    }
}

/* Reads the size of a WebP from one of the chunks that have it, and compares it with the size in the chunks before.
 */
static void read_webp_size(span file, int64_t at, ith_image_file *out)
{
    int64_t width, height;
    if (begins(file, at, "VP8X", 4)) {
        width = 1 + (int64_t)number(file, at + 12, 3, true), height = 1 + (int64_t)number(file, at + 15, 3, true);
    } else if (begins(file, at, "VP8L", 4)) {
        const uint32_t sizes = number(file, at + 9, 4, true);
        width = 1 + (sizes & 0x3fff), height = 1 + (sizes >> 14 & 0x3fff);
    } else if (begins(file, at, "VP8 ", 4)) {
        width = number(file, at + 14, 2, true) & 0x3fff, height = number(file, at + 16, 2, true) & 0x3fff;
    } else {
        return;
    }
    out->agrees &= (!out->width && !out->height) || (out->width == width && out->height == height);
    out->width = width, out->height = height;
}

static void look_at_webp(span file, ith_image_file *out)
{
    const int64_t end = 8 + (int64_t)number(file, 4, 4, true);
    bool has_xmp = false;
    out->whole = end <= file.bytes;
    for (int64_t at = 12; at <= end - 8 && at <= file.bytes - 8;) {
        const int64_t length = number(file, at + 4, 4, true);
        read_webp_size(file, at, out);
        if (!out->data_end && (begins(file, at, "VP8 ", 4) || begins(file, at, "VP8L", 4)))
            out->data_begin = at, out->data_end = at + 8 + length < file.bytes ? at + 8 + length : file.bytes;
        if (begins(file, at, "EXIF", 4))
            note_exif(at, part(file, at + 8, length), out);
        if (begins(file, at, "XMP ", 4) && !has_xmp) {
            has_xmp = true;
            out->xmp_orientation = read_xmp(part(file, at + 8, length));
        }
        out->animated |= begins(file, at, "ANIM", 4);
        at += 8 + length + length % 2;
    }
}

ith_image_file ith_image_file_look(const uint8_t *data, int64_t bytes)
{
    const span file = {data, bytes};
    ith_image_file out = {.kind = ITH_IMAGE_OTHER, .complete = true, .agrees = true, .usual = true};
    if (begins(file, 0, "\x89PNG\r\n\x1a\n", 8)) {
        out.kind = ITH_IMAGE_PNG;
        look_at_png(file, &out);
    } else if (begins(file, 0, "\xff\xd8\xff", 3)) {
        out.kind = ITH_IMAGE_JPEG;
        look_at_jpeg(file, &out);
    } else if (begins(file, 0, "RIFF", 4) && begins(file, 8, "WEBP", 4)) {
        out.kind = ITH_IMAGE_WEBP;
        look_at_webp(file, &out);
    }
    out.xmp_compressed &= !out.orientation;
    if (!out.orientation)
        out.orientation = out.xmp_orientation ? out.xmp_orientation : 1;
    return out;
}

/* Writes a number of four bytes. */
static void put_number(uint8_t *at, uint32_t value, bool little)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (little ? 8 * i : 24 - 8 * i));
}

/* Writes the checksum behind a PNG's chunk. `name` is the place of its name; `bytes` counts its data. */
static void put_checksum(uint8_t *name, int64_t bytes)
{
    put_number(name + 4 + bytes, ~av_crc(av_crc_get_table(AV_CRC_32_IEEE_LE), UINT32_MAX, name, (size_t)bytes + 4),
               false);
}

void ith_image_file_hide(const ith_image_file *file, uint8_t *copy)
{
    for (int i = 0; i < file->hidden_count; i++) {
        uint8_t *name = copy + file->hidden_names[i];
        name[3]++; /* "eXIg", "Exig", "EXIG" or "Adoce" */
        if (file->kind == ITH_IMAGE_PNG)
            put_checksum(name, number((span){name - 4, 4}, 0, 4, false));
    }
}

int64_t ith_image_file_lengthen(const ith_image_file *file, const uint8_t *data, int64_t bytes, uint8_t *out)
{
    enum { CHECKSUM = 4, CHUNK = 12, TAIL = ITH_IMAGE_MORE_BYTES - CHUNK };
    const bool png = file->kind == ITH_IMAGE_PNG, webp = file->kind == ITH_IMAGE_WEBP;
    const int64_t end = file->data_end + (png ? CHECKSUM : 0), data_bytes = file->data_end - file->data_begin - 8;
    uint8_t *tail = out + end;
    memcpy(out, data, (size_t)end);
    if (png) {
        put_number(tail, TAIL, false);
        memcpy(tail + 4, "IDAT", 4);
        tail += 8;
    }
    memset(tail, 0xfe, TAIL); /* no marker of JPEG, and other bits than the zeros behind a file */
    if (webp) {
        put_number(out + file->data_begin + 4, (uint32_t)(data_bytes + TAIL), true);
        put_number(out + 4, number((span){data, bytes}, 4, 4, true) + TAIL, true);
    }
    tail += TAIL;
    if (png) {
        put_checksum(out + end + 4, TAIL);
        tail += CHECKSUM;
    }
    memcpy(tail, data + end, (size_t)(bytes - end));
    return bytes + TAIL + (png ? CHUNK : 0);
}
