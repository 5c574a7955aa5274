/* SPDX-License-Identifier: Apache-2.0 */
/* Reads protocol buffer messages (protobuf.h). */
#include "protobuf.h"

#include <string.h>

/* Reads a number of 7 bits per byte, the lowest bits first. Returns false if it is cut short or too long. */
static bool read_varint(ith_protobuf *from, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && from->bytes > 0; shift += 7) {
        unsigned char byte = *from->at++;
        from->bytes--;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

bool ith_protobuf_next(ith_protobuf *from, ith_protobuf_field *out)
{
    uint64_t tag, length;
    if (!read_varint(from, &tag))
        return false;
    *out = (ith_protobuf_field){.number = tag >> 3};
    switch (tag & 7) {
    case 0: return read_varint(from, &out->value);
    case 1: length = 8; break;
    case 2:
        if (!read_varint(from, &length))
            return false;
        out->has_slice = true;
        break;
    case 5: length = 4; break;
    default: return false;
    }
    if (length > (uint64_t)from->bytes)
        return false;
    out->slice = (ith_protobuf){from->at, (int64_t)length};
    from->at += length;
    from->bytes -= (int64_t)length;
    return true;
}

float ith_protobuf_float(const unsigned char *at)
{
    const uint32_t bits = ith_protobuf_u32(at);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
