/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file whose tensors begin at odd addresses. */
#ifndef ITH_TESTS_MISALIGNED_H
#define ITH_TESTS_MISALIGNED_H

/* Copies a safetensors file with a space behind its header, so that all data move by one byte. Both paths may be the
 * same. */
void write_misaligned(const char *from, const char *to);

#endif
