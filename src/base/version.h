/* SPDX-License-Identifier: Apache-2.0 */
/* The version of ithaca.h that a file is compiled with, as text: "1.2.3". */
#ifndef ITH_BASE_VERSION_H
#define ITH_BASE_VERSION_H

#include <ithaca/ithaca.h>

#define ITH_TEXT(x) #x
#define ITH_DOTTED(major, minor, patch) ITH_TEXT(major) "." ITH_TEXT(minor) "." ITH_TEXT(patch)
#define ITH_VERSION_TEXT ITH_DOTTED(ITH_VERSION_MAJOR, ITH_VERSION_MINOR, ITH_VERSION_PATCH)

#endif
