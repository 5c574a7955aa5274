#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the man pages of the program from its --help: tools/make_man.sh BUILD_FOLDER [OUTPUT_FOLDER]
set -euo pipefail
command -v help2man >/dev/null || { echo "tools/make_man.sh needs help2man" >&2; exit 1; }
build=$(realpath "$1")
output=$(realpath -m "${2:-$(dirname "$0")/../docs/man}")
mkdir -p "$output"
cd "$build"
# The date would make every run differ.
export SOURCE_DATE_EPOCH=0 LC_ALL=C PATH="$build:$PATH"

page() { # NAME DESCRIPTION COMMAND
    local page=$1 purpose=$2 command=$3
    help2man --no-info --version-string="$(ithaca --version)" --name="$purpose" "$command" |
        sed -e '1s/.*/.\\" Made from --help by tools\/make_man.sh: change the program, not this page./' \
            -e "s/^\.TH ITHACA /.TH ${page^^} /" -e 's/January 1970//' \
            -e "s/^ithaca \\\\- /${page/-/\\\\-} \\\\- /" >"$output/$page.1"
}

page ithaca "video with Wan 2.1 and 2.2, and exact attention over several ranks" "ithaca"
page ithaca-generate "a prompt becomes a video" "ithaca generate"
page ithaca-attend "attention on tensors from a .safetensors file" "ithaca attend"
page ithaca-verify "every strategy of attention against a float64 softmax" "ithaca verify"
page ithaca-plan "every way to spread attention over a machine, and its predicted time" "ithaca plan"
page ithaca-tune "measure this machine, and find the fastest tiles and strategies" "ithaca tune"
page ithaca-bench "how fast attention is, beside the machine's peak" "ithaca bench"
page ithaca-bench-block "how fast a block of the transformer is, stage by stage" "ithaca bench block"
page ithaca-bench-decode "how fast the autoencoder decodes, stage by stage" "ithaca bench decode"
page ithaca-bench-encode "how fast the autoencoder encodes, stage by stage" "ithaca bench encode"
page ithaca-bench-generate "how fast a model runs, stage by stage" "ithaca bench generate"
page ithaca-info "describe the machine, the kernels and a model" "ithaca info"
page ithaca-tokenize "the ids that a model's tokenizer gives" "ithaca tokenize"
