/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a SentencePiece model (sentencepiece_model.proto): the numbers of the fields that are read or
 * written. For C and C++. */
#ifndef ITH_WAN_SENTENCEPIECE_FIELDS_H
#define ITH_WAN_SENTENCEPIECE_FIELDS_H

/* ModelProto, the whole file */
enum { ITH_MODEL_PIECE = 1, ITH_MODEL_TRAINER = 2, ITH_MODEL_NORMALIZER = 3 };
/* SentencePiece */
enum { ITH_PIECE_TEXT = 1, ITH_PIECE_SCORE = 2, ITH_PIECE_TYPE = 3 };
/* TrainerSpec */
enum { ITH_TRAINER_MODEL_TYPE = 3, ITH_TRAINER_BYTE_FALLBACK = 35 };
enum { ITH_MODEL_TYPE_UNIGRAM = 1 }; /* a value of ITH_TRAINER_MODEL_TYPE */
/* NormalizerSpec; the last three are true or false */
enum {
    ITH_NORMALIZER_NAME = 1,
    ITH_NORMALIZER_CHARSMAP = 2,
    ITH_NORMALIZER_DUMMY_PREFIX = 3,
    ITH_NORMALIZER_EXTRA_SPACES = 4,
    ITH_NORMALIZER_ESCAPES_SPACES = 5
};

/* Values of ITH_PIECE_TYPE */
typedef enum ith_piece_type {
    ITH_PIECE_NORMAL = 1,
    ITH_PIECE_UNKNOWN,
    ITH_PIECE_CONTROL,
    ITH_PIECE_USER,
    ITH_PIECE_UNUSED,
    ITH_PIECE_BYTE
} ith_piece_type;

#endif
