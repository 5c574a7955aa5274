/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures and videos as a module of the program, ithaca_media_libav.so: only a process that reads or writes pictures
 * or videos loads FFmpeg (load/media_load.h). The module exports an ith_media called ith_media_table. */
#ifndef ITH_MEDIA_MEDIA_MODULE_H
#define ITH_MEDIA_MEDIA_MODULE_H

#include "../base/modules.h"
#include "image.h"
#include "media.h"
#include "picture.h"

/* The version of this struct. It goes up with every change to it. */
#define ITH_MEDIA_MODULE_ABI 1

/* The functions of media.h, image.h and picture.h that the program calls. */
typedef struct ith_media {
    ith_module_head head;
    const char *version; /* of Ithaca: the functions know the private members of its contexts */
    __typeof__(ith_video_open) *video_open;
    __typeof__(ith_video_add) *video_add;
    __typeof__(ith_video_finish) *video_finish;
    __typeof__(ith_video_discard) *video_discard;
    __typeof__(ith_video_check) *video_check;
    __typeof__(ith_video_check_path) *video_check_path;
    __typeof__(ith_image_read) *image_read;
    __typeof__(ith_picture_write) *picture_write;
} ith_media;

#endif
