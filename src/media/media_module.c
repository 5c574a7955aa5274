/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the module (media_module.h). */
#include "media_module.h"

#include "../base/version.h"

extern ITH_API const ith_media ith_media_table;
const ith_media ith_media_table = {.head = {ITH_MEDIA_MODULE_ABI, "libav"},
                                   .version = ITH_VERSION_TEXT,
                                   .video_open = ith_video_open,
                                   .video_add = ith_video_add,
                                   .video_finish = ith_video_finish,
                                   .video_discard = ith_video_discard,
                                   .video_check = ith_video_check,
                                   .video_check_path = ith_video_check_path,
                                   .image_read = ith_image_read,
                                   .picture_write = ith_picture_write};
