#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/golden/ties.json: the ids of texts that can be divided in several ways with equal scores.

    tools/make_tie_golden.py models/shapes/tokenizer/spiece.model > tests/golden/ties.json

Each text has the ids of SentencePiece 0.2.3, which sums scores in float, and of tokenizers 0.23.3 (the library behind
transformers), which sums them in double, where they differ. Which of two equal divisions is taken follows from the rounding of the sums.
"""
import json
import random
import sys

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ["a red circle moves", "soooooo", "woooow", "1,000", "10000000", "......", "hahahaha", "llll", "eeeeeee",
         "mississippi", "tenenentent", "0000", "background", "xxxxxxxxx", "nnnnn"]


def fast_tokenizer(pieces):
    vocabulary = [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(pieces.get_piece_size())]
    fast = Tokenizer(models.Unigram(vocabulary, unk_id=pieces.unk_id(), byte_fallback=True))
    fast.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    return fast


def main():
    pieces = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
    fast, r, cases = fast_tokenizer(pieces), random.Random(8), []
    for count in [1] * 15 + [3] * 10 + [12] * 6 + [100] * 40:
        words = [r.choice(WORDS) for _ in range(count)] if count > 1 else [WORDS[len(cases)]]
        text = " ".join(words)
        case = {"text": text, "float": pieces.encode(text)[:511] + [1], "double": fast.encode(text).ids[:511] + [1]}
        differs = case["float"] != case["double"]
        if not differs:
            del case["double"]
        if differs or count < 100:
            cases.append(case)
    assert "double" in cases[-1]
    print("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]")


if __name__ == "__main__":
    main()
