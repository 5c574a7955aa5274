/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the structure of a picture's file without libav's decoders: its kind, whether it is whole, its orientation, and
 * the place of its compressed data. */
#ifndef ITH_MEDIA_IMAGE_FILE_H
#define ITH_MEDIA_IMAGE_FILE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ith_image_kind { ITH_IMAGE_OTHER = 0, ITH_IMAGE_PNG, ITH_IMAGE_JPEG, ITH_IMAGE_WEBP } ith_image_kind;

enum { ITH_IMAGE_MOST_HIDDEN = 16 };

/* The structure of a picture's file. */
typedef struct ith_image_file {
    ith_image_kind kind;
    int64_t width, height; /* of the stored picture, before it is turned upright; 0: unknown */
    bool whole;            /* the file reaches its end marker, or the length in its header */
    bool complete;         /* its quantisation tables and the scans of all coefficients are there (JPEG) */
    bool agrees;           /* all parts that have its size have the same one (WebP) */
    bool usual;            /* libav reads its colours as libjpeg does (JPEG) */
    bool animated;         /* it holds several pictures that follow one another in time */
    int xmp_orientation;   /* of the XMP data, as `orientation`; 0: they have none */
    bool xmp_compressed;   /* the orientation is unknown: no EXIF data have it, and the XMP data are compressed (PNG) */
    /* Of the first EXIF data, in a PNG of the last; if they have none, of the XMP data. 1 to 8: 1 upright; 2 mirrored;
     * 3 turned by 180 degrees; 4 mirrored and turned by 180 degrees; 5 transposed; 6 to be turned to the right; 7
     * transposed along the other diagonal; 8 to be turned to the left. */
    int orientation;
    /* The last part with compressed data. PNG, WebP: the head of the chunk, and the end of its data. JPEG: the marker
     * before the entropy-coded data, and the marker behind. */
    int64_t data_begin, data_end;
    int exif_count;   /* EXIF data that were found */
    int hidden_count; /* parts that a decoder should pass over, at most ITH_IMAGE_MOST_HIDDEN: EXIF data, and Adobe's
                       * segment beside JFIF's */
    int64_t hidden_names[ITH_IMAGE_MOST_HIDDEN]; /* the places of the four letters that name them */
} ith_image_file;

/* Reads the structure of a file in memory. */
ith_image_file ith_image_file_look(const uint8_t *data, int64_t bytes);

/* Renames parts in a copy of the file, so that a decoder passes over them. FFmpeg 8 and newer read EXIF data, and
 * refuse pictures for details that do not matter here. */
void ith_image_file_hide(const ith_image_file *file, uint8_t *copy);

#define ITH_IMAGE_MORE_BYTES 268
/* Copies a whole file to out [bytes + ITH_IMAGE_MORE_BYTES], adds bytes to its compressed data, and adapts the sizes
 * and the checksum of its format. A decoder reads the added bytes only if the data end too early. Returns the bytes of
 * the copy. */
int64_t ith_image_file_lengthen(const ith_image_file *file, const uint8_t *data, int64_t bytes, uint8_t *out);

#endif
