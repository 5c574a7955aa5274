/* SPDX-License-Identifier: Apache-2.0 */
/* Control characters, which no sentence and no line of the log has: C0 (below 0x20), DEL (0x7f) and C1 (0xc2 0x80 to
 * 0xc2 0x9f in UTF-8). */
#ifndef ITH_BASE_CONTROL_H
#define ITH_BASE_CONTROL_H

#include <stddef.h>

/* Returns the number of bytes of the character at p if it is a control character, otherwise 0. p is in a string. */
static inline size_t ith_control_bytes(const char *p)
{
    const unsigned char *c = (const unsigned char *)p;
    if ((c[0] < 0x20 && c[0]) || c[0] == 0x7f)
        return 1;
    return c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0 ? 2 : 0;
}

/* Replaces control characters of a string by '?'. */
static inline void ith_replace_controls(char *text)
{
    char *to = text;
    for (const char *p = text; *p;) {
        size_t control = ith_control_bytes(p);
        *to++ = control ? '?' : *p;
        p += control ? control : 1;
    }
    *to = '\0';
}

#endif
