/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a text into pieces of a Unigram model (arXiv:1804.10959), so that the sum of their scores is the largest.
 *
 * Divisions often have equal sums: "000" is "0" + "00" or "00" + "0". The rounding of the sums then decides, and
 * versions of SentencePiece round in different ways. This file rounds as the reference does. It is C++, for
 * sentencepiece_shim.cc alone. */
#ifndef ITH_WAN_UNIGRAM_H
#define ITH_WAN_UNIGRAM_H

#include <cstdint>
#include <string>
#include <vector>

class ith_unigram
{
  public:
    /* Reads the pieces from the bytes of a model file, which have passed ith_sentencepiece_check. */
    void read(const void *model, int64_t bytes);

    /* Returns the ids of a normalised text. A character that is in no piece becomes -1 - b for each of its bytes b.
     * in_double: sum as transformers' fast tokenizers do, in double; otherwise in float, as SentencePiece 0.2 does. */
    std::vector<int> divide(const std::string &text, bool in_double) const;

  private:
    struct piece {
        std::string text;
        float score;
        int id;
    };

    template <typename Sum> std::vector<int> divide_by(const std::string &text) const;

    std::vector<piece> pieces; /* ordered by their texts */
    float least = 0;           /* the least score of a piece */
};

#endif
