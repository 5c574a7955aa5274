/* SPDX-License-Identifier: Apache-2.0 */
/* The default repairs of ftfy.fix_text (https://ftfy.readthedocs.io), except for mojibake. */
#ifndef ITH_WAN_TEXT_FIX_H
#define ITH_WAN_TEXT_FIX_H

#include "text_codepoints.h"

/* Appends the repaired text to out. */
ith_status ith_text_fix(ith_context *context, const ith_codepoints *text, ith_codepoints *out);

#endif
