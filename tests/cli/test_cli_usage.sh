#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Senseless commands, wrong numbers, configuration files, help and man pages: all without a model's weights.
. cli/lib.sh

expect 2 "a command is needed" "$ithaca"
expect 2 "no command 'paint'" "$ithaca" paint
expect 2 "unrecognized option" "$ithaca" --nonsense
for command in "" verify; do # argp has hidden options for its own tests
    expect 2 "unrecognized option '--HANG'" timeout 20 "$ithaca" $command --HANG
    expect 2 "unrecognized option '--program-name=x'" "$ithaca" $command --program-name=x
    expect 0 "" "$ithaca" $command --usage
    grep -q "^Usage: ithaca" "$work/out" || fail "--usage says: $(cat "$work/out")"
done
expect 0 "" "$ithaca" --version
grep -q "^ithaca [0-9.]*$" "$work/out" || fail "--version says $(cat "$work/out")"
for command in generate attend verify plan bench info tokenize; do
    expect 0 "" "$ithaca" $command --help
    grep -q "Usage: ithaca $command" "$work/out" || fail "$command --help does not say how to use it"
    [ -s "$work/err" ] && fail "$command --help writes on standard error"
    expect 2 "unrecognized option.*nonsense" "$ithaca" $command --nonsense
    expect 0 "" "$ithaca" $command --version
done

# A message about a misspelled word names the nearest word that works. -h is --help.
expect 2 "no command 'generat'; the nearest is generate\$" "$ithaca" generat
expect 2 "no command 'paint'; there are generate, attend, .* and tune\$" "$ithaca" paint
while read -r word nearest; do
    expect 2 "^ithaca generate: unrecognized option '--$word'; the nearest is '--$nearest'\$" "$ithaca" generate --prompt x \
        "--$word=3"
done <<'END'
promt prompt
modle model
keep_latents keep-latents
Seed seed
verison version
print-confg print-config
END
# A name with one dash would be read as letters: -steps as -s -t -e ..., -prompt as the prompt 'rompt', -height as -h.
while read -r word nearest; do
    expect 2 "^ithaca generate: unrecognized option '-${word%%=*}'; the nearest is '--$nearest'\$" "$ithaca" generate "-$word" 3
done <<'END'
steps steps
stepz steps
prompt prompt
height=64 height
help help
promp prompt
pro prompt
out=c.mp4 output
verb verbose
vers version
END
for word in -version -vers -help -usage --verison; do
    expect 2 "^ithaca: unrecognized option '$word'; the nearest is '--[a-z]*'\$" "$ithaca" $word
done
expect 2 "no command 'paint'" "$ithaca" paint -version
# Words behind the first argument may be options, except where POSIX is followed to the letter.
expect 2 "^ithaca tokenize: unrecognized option '-vers'" "$ithaca" tokenize text -vers
POSIXLY_CORRECT=1 expect 2 "^ithaca tokenize: --model is needed" "$ithaca" tokenize text -vers
POSIXLY_CORRECT=1 expect 2 "^ithaca tokenize: unrecognized option '-vers'" "$ithaca" tokenize --model x -vers
expect 2 "invalid option -- 'x'" "$ithaca" generate -x 3
# Words with commands to a terminal, or with the end of a line, are shown with '?' for these characters.
odd=$(printf 'a\033[31m\n\302\233z')
shown='a[?]\[31m[?]{3}z'
refused() { # WORDS ARGUMENT...
    expect 2 "$1" "$ithaca" "${@:2}"
    grep -q "$(printf '\033')" "$work/err" && fail "control characters in $(cat -v "$work/err")"
    [ "$(wc -l <"$work/err")" = 2 ] && tail -n 1 "$work/err" | grep -qE "^Try 'ithaca.* --help' for more information.\$" ||
        fail "not one sentence and a hint: $(cat -v "$work/err")"
}
refused "^ithaca: there is no command '$shown'; there are" "$odd"
refused "^ithaca: unrecognized option '--$shown'" "--$odd"
refused "^ithaca generate: unrecognized option '--$shown=$shown'" generate "--$odd=$odd"
refused "^ithaca generate: invalid option -- '[?]'" generate $'-\033'
refused "^ithaca generate: invalid option -- 'z'" generate "-z$odd"
refused "^ithaca generate: option '--p=$shown' is ambiguous" generate "--p=$odd"
refused "^ithaca generate: '$shown' is not an option" generate "$odd"
for letter in "" x; do # a word of 6000 bytes is cut, between letters
    refused "^ithaca generate: '$letter(é)+\$" generate "$letter$(printf 'é%.0s' {1..3000})"
done
refused "^ithaca generate: --steps: '$shown' is not a whole number" generate --steps "$odd"
refused "^ithaca generate: --config is given twice.*of $shown into $shown" generate --config "$odd" --config "$odd"
refused "^ithaca generate: option '--model' requires an argument" generate --model
refused "^ithaca generate: option '--quiet' doesn't allow an argument" generate --quiet=3
expect 2 "--model is needed" "$ithaca" generate --negative -steps --guidance -5 -pcat -oz.gif
expect 2 "--model is needed" "$ithaca" generate -qp -steps
expect 2 "unrecognized option '--size'\$" "$ithaca" generate --size 3
for option in --p --dit-; do # --dit- is one letter more than --dit
    expect 2 "option '$option' is ambiguous" "$ithaca" generate $option x
done
for option in --prompt -p; do
    expect 2 "--model is needed" "$ithaca" generate $option --promt
done
expect 2 "'--promt'" "$ithaca" generate red circle --promt x
for command in "" "generate" "bench block"; do
    expect 0 "" "$ithaca" $command -h
    "$ithaca" $command --help | cmp - "$work/out" || fail "$command -h and --help differ"
done

# In --help, options stand under their heading.
# under HEADING: the options under a heading in $work/out.
under() { sed -n "/^ $1/,/^\$/p" "$work/out" | grep -oE -- '^ +--[a-z-]+' | tr -d ' ' | paste -sd' '; }
expect 0 "" "$ithaca" plan --help
[ "$(under "The machine:")" = "--host-ranks --machine --process-ranks --ranks --threads" ] || fail "the machine: $(under "The machine:")"
[ "$(under "Options in files:")" = "--config --print-config" ] || fail "options in files: $(under "Options in files:")"

expect 2 "--model is needed" "$ithaca" generate --prompt x
expect 2 "--prompt is needed" "$ithaca" generate --model "$model"
expect 2 "--input is needed" "$ithaca" attend --output "$work/o"
expect 2 "--output is needed" "$ithaca" attend --input "$work/i"
expect 2 "--model is needed" "$ithaca" tokenize x
expect 2 "attention" "$ithaca" bench
expect 2 "'video' is nothing" "$ithaca" bench video
expect 2 "one thing is measured at a time: leave out 'attention' or 'block'" "$ithaca" bench attention block
expect 2 "not an option" "$ithaca" verify attention
expect 2 "exclude each other" "$ithaca" generate --model "$model" --prompt x --seed 1 --noise n
expect 2 "exclude each other" "$ithaca" generate --model "$model" --prompt x --quiet --verbose
expect 2 "--dump" "$ithaca" generate --model "$model" --from-latents l --dump d
expect 2 "not an option; text with spaces needs quotes" "$ithaca" generate --model "$model" --prompt x a red circle
expect 2 "not an option; a model's folder is named by --model" "$ithaca" info "$model"
expect 2 "not an option; text with spaces needs quotes" "$ithaca" info "$model/ithaca.yaml"
expect 1 "preview '$work/p.jpg' .* must end in .png" "$ithaca" generate --model "$model" --prompt x --preview "$work/p.jpg"

# Numbers must have nothing after them, lie in their range, and be finite.
while read -r option value; do
    expect 2 "--$option: '${value/+/.}' is no" "$ithaca" generate --model "$model" --prompt x --output "$work/c.mp4" \
        "--$option=$value"
done <<'END'
steps 12x
steps
steps 0
steps -4
steps +4
steps 1-2
steps 1.5
steps 0x10
steps 99999999999999999999
frames 0
height 1e3
width ten
crf 52
crf -1
seed -1
seed 18446744073709551616
seed 1e3
shift nan
shift inf
shift 0
shift 1e999
shift 3,0
shift +3
fps 0
fps -12
boundary 1.1
guidance 1,2,3
guidance ,1
guidance 1,
guidance a
guidance nan,1
ranks 0
threads 0
ulysses 0
ring x
solver dpm
sigmas UniPC
cfg both
precision f64
END
expect 2 "--ranks: 'x' is no" "$ithaca" attend --input i --output o --ranks x
expect 2 "--precision: 'f16' is no" "$ithaca" attend --input i --output o --precision f16
while read -r command option value; do
    expect 2 "--$option: '$value' is no" "$ithaca" $command --input i --output o --$option="$value"
done <<'END'
attend chunks 0
attend direction round
attend softmax fixed
attend exchange by_post
attend block-q 0
attend block-kv x
attend block-kv-compute -1
attend block-kv-compute-in 1.5
END
while read -r command option value; do
    expect 2 "--$option: '$value' is no" "$ithaca" $command --$option="$value"
done <<'END'
verify seq 1,
verify seq ,1
verify seq 1,,2
verify seq 0
verify seq 1;2
verify kv-seq -1
verify dtype f64
verify mask causal
verify ranks 0
bench seq
bench seq 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17
bench softmax online,offline
bench repeat 0
bench heads none
info threads 0
END
expect 2 "exclude each other" "$ithaca" attend --input i --output o --fold --no-fold
expect 2 "--strategy: .*spiral" "$ithaca" bench attention --strategy single,spiral
expect 2 "--strategy: " "$ithaca" bench attention --strategy single,
expect 2 "--strategy: .*spiral" "$ithaca" generate --model "$model" --prompt x --output "$work/c.mp4" --strategy spiral

# The output is checked before the model.
expect 1 "no known kind" "$ithaca" generate --model /none --prompt x --output "$work/clip.avi"
expect 1 "its folder does not exist" "$ithaca" generate --model /none --prompt x --output "$work/none/clip.mp4"
expect 1 "not an ordinary file|Not a directory" "$ithaca" generate --model /none --prompt x --output /dev/full/clip.mp4
expect 1 "'$work/none/d'" "$ithaca" generate --model /none --prompt x --output "$work/c.mp4" --dump "$work/none/d"
expect 1 "/none" "$ithaca" generate --model /none --prompt x --output "$work/c.mp4"
expect 1 "/none" "$ithaca" info --model /none
for option in "--threads 2" "--device cpu"; do
    expect 2 "${option% *} is about kernels, and a model is described" "$ithaca" info --model "$model" $option
done
expect 2 "--model is needed" "$ithaca" info --vae "$model/vae"
expect 2 "--model: an empty text names no folder" "$ithaca" info --model ""
expect 1 "/none" "$ithaca" tokenize --model /none x

# config CONTENT WORDS: a configuration file with this content is refused, with its line.
config() {
    printf "$1" >"$work/c.yaml"
    expect 1 "$2" "$ithaca" generate --model /none --prompt x --output "$work/c.mp4" --config "$work/c.yaml"
}
config 'steps: 4\nseeds: 1\n' "c.yaml:2: seeds: there is no such option"
config '# comment\n\nsteps: 12x\n' "c.yaml:3: steps: '12x' is not a whole number"
config 'steps: [1, 2]\n' "c.yaml:1: steps: its value is not a single one"
config 'guidance: [1, 2, 3]\n' "c.yaml:1: guidance: '1,2,3'"
config 'guidance: {a: 1}\n' "c.yaml:1: guidance"
config 'steps: 1\nsteps: 2\n' "c.yaml:2: steps: it is set twice"
config 'steps: [1\n' "c.yaml:2: "
config '\tsteps: 1\n' "c.yaml:1: "
config 'just words\n' "c.yaml:1: the file: it is not a mapping"
config 'config: other.yaml\n' "c.yaml:1: config: only the command line"
config 'json: maybe\n' "c.yaml:1: json: 'maybe' is neither true nor false"
config 'prompt: "a\\0b"\n' "c.yaml:1: prompt"
config 'steps: 1\n---\nsteps: 2\n' "c.yaml:2: a second document begins"
config '\xff\xfe\n' "c.yaml:"
config '' "/none"
config 'guidance: 3\nprompt: |\n  two\n  lines\nnegative:\nshift: 5\n' "/none"
expect 1 "none.yaml: No such file" "$ithaca" generate --prompt x --config "$work/none.yaml"
expect 1 "not a file" "$ithaca" generate --prompt x --config /dev/zero
for open in '[' '{a: ' '- ' '? '; do
    head -c 1000000 < <(yes -- "$open" | tr -d '\n') >"$work/c.yaml"
    expect 1 "c.yaml:1: lists and mappings lie more than 8 deep" timeout 60 "$ithaca" generate --prompt x \
        --config "$work/c.yaml"
done
printf 'steps: 4\nprompt:\n  [[[[\n  [[[[[[[[' >"$work/c.yaml"
expect 1 "c.yaml:4: lists and mappings lie more than 8 deep" "$ithaca" generate --prompt x --config "$work/c.yaml"
# libyaml needs quadratic time for anchors and directives.
for line in '&a%d seed: 1\n' '%%TAG !a%d! tag:x,2000:\n'; do
    printf "$line" {1..40000} >"$work/c.yaml"
    expect 1 "c.yaml:101: the file has more than 100 anchors" timeout 10 "$ithaca" generate --prompt x --config "$work/c.yaml"
done
head -c 1100000 /dev/zero | tr '\0' '#' >"$work/c.yaml"
expect 1 "c.yaml: it is longer than 1048576 bytes" "$ithaca" generate --prompt x --config "$work/c.yaml"

# The defaults of a model folder may not name files.
mkdir "$work/model"
echo 'output: /etc/passwd' >"$work/model/ithaca.yaml"
expect 1 "model/ithaca.yaml:1: output: a model folder may not set it" \
    "$ithaca" generate --model "$work/model" --prompt x --output "$work/c.mp4"

# examples/ithaca.yaml names every option that a file may set, and is itself a legal file.
expect 1 "/none" "$ithaca" generate --config "$root/examples/ithaca.yaml" --model /none --prompt x --output "$work/c.mp4"
for option in $("$ithaca" generate --help | grep -oE -- '--[a-z-]+' | sort -u | cut -c3-); do
    case $option in config | print-config | help | usage | version) continue ;; esac
    grep -qE "^(# )?$option:" "$root/examples/ithaca.yaml" || fail "examples/ithaca.yaml does not explain $option"
done
sed -nE 's/^(# )?([a-z-]+: .*)/\2/p' "$root/examples/ithaca.yaml" | grep -vE '^(from-latents|resume|prompts|count|dit|dit-high|dit-low|vae|text-encoder|image-encoder):' >"$work/all.yaml"
expect 1 "/none" "$ithaca" generate --config "$work/all.yaml" --model /none --prompt x --output "$work/c.mp4" --quiet

# Standard output that is full, or closed.
"$ithaca" info >/dev/full 2>"$work/err" && fail "info > /dev/full succeeds"
grep -q "standard output: No space left" "$work/err" || fail "info > /dev/full says: $(cat "$work/err")"
for command in "--help" "--version" "generate --help" "verify --version"; do
    status=0
    "$ithaca" $command >/dev/full 2>"$work/err" || status=$?
    [ $status = 1 ] && grep -q "standard output: No space left" "$work/err" || fail "$command > /dev/full: $status"
    status=0
    "$ithaca" $command >&- 2>"$work/err" || status=$?
    [ $status = 1 ] && grep -q "standard output: Bad file" "$work/err" || fail "$command >&-: exit status $status"
done
plans="plan --machine h100-8x16 --problem wan2.2-a14b-720p --ranks 64 --json" # more than a pipe holds
for command in info "$plans"; do
    { "$ithaca" $command 2>"$work/err"; } | true
    [ -s "$work/err" ] && fail "a reader that goes away is complained about: $command: $(cat "$work/err")"
done
"$ithaca" $plans >/dev/full 2>"$work/err" && fail "plan > /dev/full succeeds"
[ "$(cat "$work/err")" = "ithaca: standard output: No space left on device" ] || fail "plan > /dev/full says: $(cat "$work/err")"

"$ithaca" info --json | jq -e '.version and .machine.processors >= 1 and (.kernels | length) >= 1 and
    any(.kernels[]; .usable and .f32_gflops > 0) and all(.peaks[]; .gflops > 0) and .transports[0].name == "local" and
    all(.kernels[]; .usable == has("peak")) and any(.products[]; .name == "f32_ref" and .usable) and
    all(.kernels[] | select(.f32_gflops); (.f32_share * .peak_gflops / .f32_gflops - 1 | fabs) < 1e-9)' >/dev/null ||
    fail "info --json lacks something"

# `info` lists modules as used, or as refused with the reason.
echo text >"$work/ithaca_kernel_text.so"
ITHACA_CPU=baseline ITHACA_PLUGIN_PATH=$work "$ithaca" info --json | jq -e '(.modules | length) == 1 and
    (.modules[0].name | endswith("/ithaca_kernel_text.so")) and .modules[0].about != "used"' >/dev/null ||
    fail "info lists no module that was refused"
ITHACA_CPU=baseline ITHACA_PLUGIN_PATH=$build/tests/modules/plain "$ithaca" info --json | jq -e '.modules[0].about == "used" and
    any(.kernels[]; .name == "f32_module" and .usable)' >/dev/null || fail "info lists no module that is used"

# A folder whose name is no UTF-8: its modules are listed, with '?' for the byte.
mkdir "$work"/$'modul\xe9s' && cp "$build/tests/modules/plain"/* "$work"/$'modul\xe9s'
ITHACA_CPU=baseline ITHACA_PLUGIN_PATH=$work/$'modul\xe9s' "$ithaca" info --json | jq -e '(.modules | length) >= 1 and
    (.modules[0].name | contains("modul?s"))' >/dev/null || fail "info does not list modules in a folder that is no UTF-8"

# `info` lists transports: those that were found, those that cannot be used, with the reason, and the missing ones for
# MPI.
cp "$build"/tests/modules/transports/ithaca_transport_*.so "$work"
echo text >"$work/ithaca_transport_text.so"
ITHACA_CPU=baseline ITHACA_PLUGIN_PATH=$work "$ithaca" info --json | jq -e '[.transports[] | {(.name): .about}] | add |
    .local == "ranks as threads of one process" and .socket == "ranks in several processes" and
    .text == "cannot be used: file too short" and .hollow == "cannot be used: it lacks its table or connect" and .mpich == "cannot be used: its module was not found" and
    .openmpi == .mpich' >/dev/null || fail "info does not say which transports there are, or why others are not"

# The name of a module may have a dot.
mkdir "$work/dotted" && cp "$build"/tests/modules/transports/ithaca_transport_hollow.so "$work/dotted/ithaca_transport_hollow.2.so"
ITHACA_CPU=baseline ITHACA_PLUGIN_PATH=$work/dotted "$ithaca" info --json | jq -e 'any(.transports[]; .name == "hollow.2")' >/dev/null ||
    fail "info cuts the name of a transport at its dot"
ITHACA_PLUGIN_PATH=$work/dotted expect 1 "hollow.2: it lacks its table or connect" "$ithaca" verify --transport hollow.2
ITHACA_PLUGIN_PATH=$work/dotted expect 2 "'hollow' is none of auto, local, mpi" "$ithaca" verify --transport hollow

# The files of a model in a folder whose name is no UTF-8.
cp -r "$model" "$work"/$'mod\xe9l'
"$ithaca" info --model "$work"/$'mod\xe9l' --json | jq -e '.model.files.vae.path | contains("mod?l")' >/dev/null ||
    fail "info does not list the files of a model in a folder that is no UTF-8"

# `info --model` describes a model from its configurations. No weights are read, and no kernel is measured.
cp -r "$model" "$work/described"
rm "$work"/described/*/*.safetensors "$work/described/tokenizer/spiece.model"
"$ithaca" info --model "$work/described" --json | jq -e '.model.experts == 2 and .machine.processors >= 1 and
    (has("kernels") or has("peaks") | not)' >/dev/null || fail "info --model lacks something, or has too much"
"$ithaca" info --dit "$model/transformer" --vae "$model/vae" --text-encoder "$model/text_encoder/model.safetensors" --json |
    jq -e '.model | .experts == 1 and .predicted_memory_bytes > 1e6 and (.files | keys == ["text_encoder", "transformer", "vae"]
    and .transformer.types == "bf16" and .text_encoder.types == "bf16" and .vae.tensors == 146 and .vae.bytes == 10311948)' \
    >/dev/null || fail "info --dit describes the files otherwise"
expect 1 "spiece.model" "$ithaca" tokenize --model "$work/described" x
# It shows the defaults of the model's folder, with which a run would begin.
sed -i 's/^height: .*/height: 96/; s/^guidance: .*/guidance: [2, 1]/' "$work/described/ithaca.yaml"
"$ithaca" info --model "$work/described" --json | jq -e '.model.defaults | .height == 96 and .width == 128 and .frames == 17 and
    .steps == 16 and .fps == 12 and .guidance == [2, 1] and .shift_source == "ithaca.yaml of the model folder"' >/dev/null ||
    fail "info does not show the defaults of the model's folder"
echo 'output: x.mp4' >>"$work/described/ithaca.yaml"
expect 1 "ithaca.yaml:[0-9]+: output: a model folder may not set it" "$ithaca" info --model "$work/described"

# ITHACA_CPU hides instruction sets.
ITHACA_CPU=baseline "$ithaca" info --json | jq -e '.machine.instruction_sets == "baseline" and (.peaks | length) == 1 and
    [.kernels[] | select(.usable) | .name, .peak] == ["f32_ref", "f32_ref"] and
    [.products[] | select(.usable) | .name] == ["f32_ref"]' >/dev/null || fail "ITHACA_CPU=baseline"
ITHACA_CPU=abacus expect 1 "ITHACA_CPU names 'abacus'.*baseline avx2" "$ithaca" info

if command -v help2man >/dev/null; then
    "$root/tools/make_man.sh" "$build" "$work/man"
    diff -r "$work/man" "$root/docs/man" || fail "docs/man is not what --help says: run tools/make_man.sh"
else
    echo "skipped: no help2man here to compare docs/man with --help"
fi
[ -z "$(ls -A "$work" | grep -E 'mp4|partial')" ] || fail "something was left behind: $(ls -A "$work")"
finish
