/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the module of pictures and videos (media_module.h) when it is first needed. It is a part of the program, so it
 * lies in ithaca/ beside libithaca or beside libithaca itself, whatever ITHACA_PLUGIN_PATH says, and stays loaded. */
#ifndef ITH_MEDIA_MEDIA_LOAD_H
#define ITH_MEDIA_MEDIA_LOAD_H

#include "../media_module.h"

/* Sets *media to the functions of the module. ITH_ERR_UNSUPPORTED if it is missing, cannot be loaded, or belongs to
 * another version of Ithaca. Any thread may call this. */
ith_status ith_media_load(ith_context *context, const ith_media **media);

#endif
