/* SPDX-License-Identifier: Apache-2.0 */
/* The length of an encoded prompt. */
#ifndef ITH_WAN_TEXT_LENGTH_H
#define ITH_WAN_TEXT_LENGTH_H

/* The most ids of a prompt, </s> included; also the number of rows to which the reference pads an encoded prompt. */
#define ITH_TEXT_LEN 512

/* The most bytes of a prompt. Its first ITH_TEXT_LEN ids count, and are known in a fraction of a second, unless it
 * consists of nested HTML entities (text_fix.c). */
#define ITH_TEXT_BYTES (256 << 10)

#endif
