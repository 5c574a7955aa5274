/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of linear layers and their sets, for the files of this folder. */
#ifndef ITH_LINEAR_LINEAR_SET_H
#define ITH_LINEAR_LINEAR_SET_H

#include "linear_state.h"

/* Sets the matrices of a layer, which are known to be legal, and converts them with the layer's merged additions if the
 * set keeps them. The matrices may be linear->weights. */
ith_status ith_linear_take(ith_context *context, ith_linear *linear, const ith_linear_weight *matrices, int count);
/* The set's size of layers from `in` to `out`; NULL: there are none. */
ith_linear_size *ith_linear_size_of(const ith_linear_set *set, int64_t in, int64_t out, const ith_operand_types *types);
/* Adds a layer without a bias to a set, with room for `matrices` matrices. Sets *size to its size, NULL after a
 * failure. Otherwise like ith_linear_lay_out. */
ith_linear *ith_linear_place(ith_linear_set *set, int64_t in, int64_t out, ith_operand_types types, int64_t matrices,
                             ith_arena *arena, ith_linear_size **size);

/* Converted weights of some features within one block of k: a left operand of a product kernel. */
typedef struct ith_linear_left {
    char *first;        /* part 0 of the first feature; the next feature lies size->row_bytes behind it, or they are
                           interleaved (ith_linear.interleaved) */
    int64_t part_bytes; /* bytes from one part to the next */
} ith_linear_left;

/* Bytes of the converted weights of a layer. */
int64_t ith_linear_packed_bytes(const ith_linear_size *size);
/* Takes memory for these weights from an arena. */
char *ith_linear_take_packed(const ith_linear_size *size, ith_arena *arena);
/* The number of pieces in which all weights of a layer are converted. */
int64_t ith_linear_pieces(const ith_linear_size *size);
/* Converts one of these pieces into linear->packed. Returns NULL, or the name of the file that was cut while it was
 * read. */
const char *ith_linear_pack_piece(const ith_linear *linear, int64_t piece);
/* The packed weights of a layer within block number `block` of k, from output feature `first` on. */
ith_linear_left ith_linear_packed_left(const ith_linear *linear, int64_t first, int64_t block);

#endif
