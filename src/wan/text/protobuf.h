/* SPDX-License-Identifier: Apache-2.0 */
/* Reads protocol buffer messages field by field (https://protobuf.dev/programming-guides/encoding). */
#ifndef ITH_WAN_PROTOBUF_H
#define ITH_WAN_PROTOBUF_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of a message that are not read yet, or the contents of a field. */
typedef struct ith_protobuf {
    const unsigned char *at;
    int64_t bytes;
} ith_protobuf;

/* A field of a message. */
typedef struct ith_protobuf_field {
    uint64_t number, value; /* number of the field, and its value if it is a varint */
    bool has_slice;         /* whether the field gives its length: it is a text, bytes or a message */
    ith_protobuf slice;     /* its contents, unless it is a varint */
} ith_protobuf_field;

/* Reads the next field. Returns false at the end and for a malformed field. Groups, a kind of field that no model uses,
 * count as malformed. */
bool ith_protobuf_next(ith_protobuf *from, ith_protobuf_field *out);

/* Reads a little-endian number of 4 bytes. It is inline because the check of a tokenizer reads millions. */
static inline uint32_t ith_protobuf_u32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Reads a little-endian float32. */
float ith_protobuf_float(const unsigned char *at);

#endif
