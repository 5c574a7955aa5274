/* SPDX-License-Identifier: Apache-2.0 */
/* Characters of UTF-8 in texts, for the program as well, which includes nothing of base. */
#ifndef ITH_MEDIA_UTF8_H
#define ITH_MEDIA_UTF8_H

#include "../base/control.h"

#endif
