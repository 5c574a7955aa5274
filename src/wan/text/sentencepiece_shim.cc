/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece behind C functions: exceptions become statuses, and nothing is printed to standard error. */
extern "C" {
#include "sentencepiece_shim.h"
#include "../../files/quote.h"
}
#include "unigram.h"

#include <sentencepiece_processor.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

/* A piece whose name in a text means the piece itself: </s>, <pad>, <s>, <unk>. */
struct special_piece {
    std::string name;
    int id;
};

struct ith_sentencepiece {
    sentencepiece::SentencePieceProcessor processor;
    ith_unigram unigram;
    std::vector<special_piece> special;
    int unknown = -1; /* the piece for unknown characters; unk_id() is -1 if another piece is named <unk> */
};

namespace sentencepiece
{
namespace logging
{
/* Some versions of SentencePiece export this function, but no public header declares it. */
__attribute__((weak)) void SetMinLogLevel(int level);
} // namespace logging
} // namespace sentencepiece

namespace
{

constexpr int kFatalOnly = 3;

/* Fails with the reason for which SentencePiece refused a model. */
ith_status refused(ith_context *context, const char *path, const char *reason)
{
    if (std::strstr(reason, "bad_alloc"))
        return ith_fail(context, ITH_ERR_MEMORY, "%s: out of memory in SentencePiece", path);
    if (std::strstr(reason, ".cc(")) /* `reason` is the text of a failed assertion, which helps no user */
        return ith_fail(context, ITH_ERR_FORMAT, "%s is not a SentencePiece model, or is damaged", path);
    return ith_fail(context, ITH_ERR_FORMAT, "%s: SentencePiece refused it: %s", path, ith_quote(reason).text);
}

/* Calls `body` and returns its status. If it throws a C++ exception, returns a status for the exception. */
template <typename Body> ith_status guard(ith_context *context, const char *what, Body body)
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return ith_fail(context, ITH_ERR_MEMORY, "%s: out of memory in SentencePiece", what);
    } catch (const std::exception &e) {
        return refused(context, what, e.what());
    } catch (...) {
        return ith_fail(context, ITH_ERR_INTERNAL, "%s: SentencePiece failed", what);
    }
}

/* Lists the pieces that SentencePiece itself never takes from a text, and finds the one for unknown characters. */
void list_special(ith_sentencepiece *pieces)
{
    const auto &processor = pieces->processor;
    for (int id = 0; id < processor.GetPieceSize(); id++) {
        if (processor.IsUnknown(id))
            pieces->unknown = id;
        if ((processor.IsControl(id) || processor.IsUnknown(id)) && !processor.IdToPiece(id).empty())
            pieces->special.push_back({processor.IdToPiece(id), id});
    }
}

/* The special piece with the longest name that the text at `at` begins with; NULL if there is none. */
const special_piece *find_special(const ith_sentencepiece *pieces, const char *at)
{
    const special_piece *found = nullptr;
    for (const special_piece &one : pieces->special)
        if (!std::strncmp(at, one.name.c_str(), one.name.size()) && (!found || one.name.size() > found->name.size()))
            found = &one;
    return found;
}

/* Whether `id` is the id of a byte. (SentencePiece has no byte for ids below 0.) */
bool is_byte(const ith_sentencepiece *pieces, int id)
{
    return id >= 0 && pieces->processor.IsByte(id);
}

/* The id of the piece that stands for a byte; -1 if the model has none. */
int byte_id(const ith_sentencepiece *pieces, int byte)
{
    char name[] = "<0x00>";
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte) & 0xff);
    const int id = pieces->processor.PieceToId(name);
    return is_byte(pieces, id) ? id : -1;
}

/* Normalises a text. Not every version of SentencePiece has a function for it, but its pieces together are the
 * normalised text. */
std::string normalise(const ith_sentencepiece *pieces, const char *text, size_t bytes)
{
    std::vector<std::string> found;
    std::string out;
    auto encoded = pieces->processor.Encode(absl::string_view(text, bytes), &found);
    if (!encoded.ok())
        throw std::runtime_error(std::string(encoded.message()));
    for (const std::string &piece : found)
        if (is_byte(pieces, pieces->processor.PieceToId(piece)))
            out += static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
        else
            out += piece;
    return out;
}

/* Appends the ids of a text without special pieces. Unknown characters become the ids of their bytes, or, if the model
 * has none, one id for all that follow one another. */
void append(const ith_sentencepiece *pieces, const char *text, size_t bytes, bool in_double, std::vector<int> *all)
{
    bool in_run = false;
    for (int id : pieces->unigram.divide(normalise(pieces, text, bytes), in_double)) {
        const int byte = id < 0 ? byte_id(pieces, -1 - id) : -1;
        if (id >= 0 || byte >= 0)
            all->push_back(id >= 0 ? id : byte);
        else if (!in_run)
            all->push_back(pieces->unknown);
        in_run = id < 0 && byte < 0;
    }
}

/* Appends the ids of a text. The names of special pieces divide it, and each part is encoded by itself, as the
 * reference (transformers' fast tokenizers) does. */
void encode(const ith_sentencepiece *pieces, const char *text, bool in_double, std::vector<int> *all)
{
    const char *begin = text, *at = text;
    while (*at) {
        const special_piece *special = find_special(pieces, at);
        if (!special) {
            at++;
            continue;
        }
        append(pieces, begin, static_cast<size_t>(at - begin), in_double, all);
        all->push_back(special->id);
        begin = at += special->name.size();
    }
    append(pieces, begin, static_cast<size_t>(at - begin), in_double, all);
}

} // namespace

ith_status ith_sentencepiece_create(ith_context *context, const char *path, const void *model, int64_t bytes,
                                    ith_sentencepiece **out)
{
    *out = nullptr;
    if (bytes > INT_MAX)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: a SentencePiece model has less than 2 GiB", path);
    if (sentencepiece::logging::SetMinLogLevel)
        sentencepiece::logging::SetMinLogLevel(kFatalOnly);
    ith_sentencepiece *pieces = nullptr;
    ith_status status = guard(context, path, [&] {
        pieces = new ith_sentencepiece;
        auto loaded = pieces->processor.LoadFromSerializedProto(
            absl::string_view(static_cast<const char *>(model), static_cast<size_t>(bytes)));
        if (!loaded.ok())
            return refused(context, path, std::string(loaded.message()).c_str());
        pieces->unigram.read(model, bytes);
        list_special(pieces);
        return ITH_OK;
    });
    if (status)
        ith_sentencepiece_free(&pieces);
    *out = pieces;
    return status;
}

void ith_sentencepiece_free(ith_sentencepiece **pieces)
{
    if (!pieces)
        return;
    delete *pieces;
    *pieces = nullptr;
}

int64_t ith_sentencepiece_count(const ith_sentencepiece *pieces)
{
    return pieces->processor.GetPieceSize();
}

int32_t ith_sentencepiece_end_id(const ith_sentencepiece *pieces)
{
    return pieces->processor.eos_id();
}

ith_status ith_sentencepiece_encode(ith_context *context, const ith_sentencepiece *pieces, const char *text,
                                    ith_sentencepiece_way way, int64_t most, int32_t *ids, int64_t *count)
{
    *count = 0;
    return guard(context, "the prompt", [&] {
        std::vector<int> all;
        encode(pieces, text, way.in_double, &all);
        bool in_run = false;
        for (int id : all) {
            const bool folded = way.folds_bytes && pieces->processor.IsByte(id);
            if (*count < most && !(folded && in_run))
                ids[(*count)++] = folded ? pieces->unknown : id;
            in_run = folded;
        }
        return ITH_OK;
    });
}
