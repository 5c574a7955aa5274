#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A weight file is cut, overwritten or replaced while `ithaca generate` uses it: exit status 1, and a sentence that names
# the file.
. cli/lib.sh
cd "$work"
know_rates
part=transformer/diffusion_pytorch_model-00001-of-00002.safetensors

# disturb WORDS RANKS COMMAND: runs COMMAND on the file when the first step is done. The run would take minutes.
disturb() {
    local words=$1 ranks=$2 command=$3 process status=0
    rm -rf own err && cp -r "$model" own
    "$ithaca" generate --model own --prompt x --height 48 --width 48 --frames 1 --steps 10000 --boundary 0 --ranks "$ranks" --verbose \
        --output clip.mp4 >out 2>err </dev/null &
    process=$!
    while kill -0 "$process" 2>/dev/null; do
        grep -q "denoise: step" err 2>/dev/null && break
        sleep 0.05
    done
    eval "$command"
    wait "$process" || status=$?
    [ "$status" = 1 ] || fail "$command: exit status $status: $(tail -c 300 err)"
    grep -qE "own/$part $words" err || fail "$command: no '$part $words' in: $(tail -c 300 err)"
    ls -A | grep -vxE 'own|out|err' && fail "$command: something is left behind"
}

changed="(changed while it was in use|was cut while it was in use)"
disturb "$changed" 1 'truncate -s 8000 "own/$part"'
disturb "$changed" 4 'truncate -s 8000 "own/$part"'
disturb "changed while it was in use" 1 'printf x | dd of="own/$part" bs=1 seek=2000000 conv=notrunc status=none'
disturb "changed while it was in use" 2 'cp "own/$part" other && mv other "own/$part"'
finish
