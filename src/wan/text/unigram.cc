/* SPDX-License-Identifier: Apache-2.0 */
/* The best division of a text into pieces (unigram.h). */
#include "unigram.h"

extern "C" {
#include "protobuf.h"
#include "sentencepiece_fields.h"
}

#include <algorithm>
#include <cfloat>

namespace
{

constexpr float user_defined_score = -0.1f; /* nearly the best score, as in SentencePiece */
constexpr int unknown_penalty = 10;         /* an unknown character scores this less than the worst piece */

/* A piece of a model file, as it is read. */
struct read_piece {
    std::string text;
    float score = 0;
    uint64_t type = ITH_PIECE_NORMAL;
};

read_piece read_one(ith_protobuf message)
{
    read_piece out;
    ith_protobuf_field f;
    while (ith_protobuf_next(&message, &f)) {
        if (f.number == ITH_PIECE_TEXT && f.has_slice)
            out.text.assign(reinterpret_cast<const char *>(f.slice.at), static_cast<size_t>(f.slice.bytes));
        if (f.number == ITH_PIECE_SCORE && !f.has_slice && f.slice.bytes == 4)
            out.score = ith_protobuf_float(f.slice.at);
        if (f.number == ITH_PIECE_TYPE && !f.has_slice)
            out.type = f.value;
    }
    return out;
}

/* The bytes of the UTF-8 character that begins with this byte. */
size_t character_bytes(char first)
{
    return static_cast<size_t>("\1\1\1\1\1\1\1\1\1\1\1\1\2\2\3\4"[static_cast<unsigned char>(first) >> 4]);
}

/* The byte of a text at `at`; -1 behind its end. */
int byte_at(const std::string &text, size_t at)
{
    return at < text.size() ? static_cast<unsigned char>(text[at]) : -1;
}

/* The best division of the text up to some byte: its sum, and its last piece. */
template <typename Sum> struct division {
    Sum sum = 0;
    int64_t from = -1; /* where the last piece begins; -1: there is no division yet */
    int id = 0;        /* of the last piece; -1: an unknown character */
};

/* Takes a division if it is better than the one that was found before. */
template <typename Sum> void offer(division<Sum> *best, int64_t from, Sum sum, int id)
{
    if (best->from < 0 || sum > best->sum)
        *best = {sum, from, id};
}

/* The ids of the best division of the whole text. */
template <typename Sum> std::vector<int> ids_of(const std::string &text, const std::vector<division<Sum>> &best)
{
    std::vector<int> ids;
    for (size_t end = text.size(), from; end > 0; end = from) {
        from = static_cast<size_t>(best[end].from);
        if (best[end].id >= 0)
            ids.push_back(best[end].id);
        for (size_t at = end; best[end].id < 0 && at > from; at--)
            ids.push_back(-1 - byte_at(text, at - 1));
    }
    std::reverse(ids.begin(), ids.end());
    return ids;
}

} // namespace

void ith_unigram::read(const void *model, int64_t bytes)
{
    ith_protobuf message = {static_cast<const unsigned char *>(model), bytes};
    ith_protobuf_field f;
    int id = 0;
    least = FLT_MAX;
    while (ith_protobuf_next(&message, &f)) {
        if (f.number != ITH_MODEL_PIECE || !f.has_slice)
            continue;
        const read_piece one = read_one(f.slice);
        if (one.type == ITH_PIECE_NORMAL)
            least = std::min(least, one.score);
        if (!one.text.empty() && (one.type == ITH_PIECE_NORMAL || one.type == ITH_PIECE_USER))
            pieces.push_back({one.text, one.type == ITH_PIECE_NORMAL ? one.score : user_defined_score, id});
        id++;
    }
    std::sort(pieces.begin(), pieces.end(), [](const piece &a, const piece &b) { return a.text < b.text; });
}

template <typename Sum> std::vector<int> ith_unigram::divide_by(const std::string &text) const
{
    std::vector<division<Sum>> best(text.size() + 1);
    best[0].from = 0;
    for (size_t at = 0; at < text.size(); at++) {
        if (best[at].from < 0)
            continue;
        const int64_t from = static_cast<int64_t>(at);
        const size_t one = std::min(character_bytes(text[at]), text.size() - at);
        bool is_known = false;
        auto first = pieces.begin(), last = pieces.end(); /* the pieces that begin like the text at `at` */
        for (size_t length = 1; at + length <= text.size(); length++) {
            const int byte = byte_at(text, at + length - 1);
            first =
                std::partition_point(first, last, [&](const piece &p) { return byte_at(p.text, length - 1) < byte; });
            last =
                std::partition_point(first, last, [&](const piece &p) { return byte_at(p.text, length - 1) == byte; });
            if (first == last)
                break;
            if (first->text.size() != length)
                continue;
            offer<Sum>(&best[at + length], from, best[at].sum + static_cast<Sum>(first->score), first->id);
            is_known = is_known || length == one;
        }
        if (!is_known)
            offer<Sum>(&best[at + one], from, best[at].sum + (static_cast<Sum>(least) - unknown_penalty), -1);
    }
    return ids_of(text, best);
}

std::vector<int> ith_unigram::divide(const std::string &text, bool in_double) const
{
    return in_double ? divide_by<double>(text) : divide_by<float>(text);
}
