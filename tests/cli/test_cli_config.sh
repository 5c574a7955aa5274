#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --config and --print-config: every option of every command can stand in a file; errors name file and line; the command
# line counts more than the file, and the file more than the model folder; a printed configuration can be read again.
. cli/lib.sh
cd "$work"
commands=("generate" "attend" "verify" "plan" "tune" "bench attention" "bench block" "bench decode" "bench encode" "bench generate" "info" "tokenize")

# options COMMAND: "NAME ARGUMENT" for each option that may stand in a file.
options() { "$ithaca" $1 --help | grep -oE '^ {2,6}(-[a-z], )?--[a-z-]+(=[^ ]+)?' | sed -E 's/.*--(.*)/\1/; s/=/ /' | sort -u |
    grep -vE '^(config|print-config|help|usage|version)( |$)'; }

# value_for NAME ARGUMENT: a value for an option whose help names this argument, other than its default. Texts differ,
# because two outputs must not name the same file.
value_for() {
    case "$2" in
    "") echo true ;;
    N | N,* | "N["*) echo 3 ;;
    G* | X | MS) echo 0.5 ;;
    SECONDS | MB) echo 5 ;;
    TYPE | "T["*) echo f32 ;;
    S,* | "S["*) echo online ;;
    NAME) echo ring ;; # a strategy, or the name of a kernel, which may be any text here
    *\|*) echo "${2##*|}" ;;
    *) echo "text-of-$1" ;;
    esac
}

# without_sources FILE: the options and values of a printed configuration.
without_sources() { sed -E 's/ *# .*//' "$1" | grep -v '^$'; }

for command in "${commands[@]}"; do
    options "$command" >names
    sed -i -e 's/^no-fold$/no-fold no|false/' -e 's/^slow-factor X$/slow-factor 1|3/' names # excludes fold; at least 1
    [ -s names ] || fail "no options: $command"
    while read -r name argument; do
        printf '%s: %s\n' "$name" "$(value_for "$name" "$argument")"
    done <names >all.yaml
    expect 0 "" "$ithaca" $command --config all.yaml --print-config
    grep -vE "the (model's own values|choices of the plan) are left open" err && fail "standard error of $command: $(cat err)"
    cp out printed.yaml
    line=0
    while read -r name argument; do
        line=$((line + 1))
        grep -qE "^$name: .+ # all.yaml:$line\$" printed.yaml || fail "$command: no line of $name ($(grep "^$name:" printed.yaml))"
    done <names
    # The printed configuration can be read again, and gives the same values.
    expect 0 "" "$ithaca" $command --config printed.yaml --print-config
    without_sources out >second
    without_sources printed.yaml >first
    same first second
    # The defaults can be read again too.
    expect 0 "" "$ithaca" $command --print-config
    cp out printed.yaml
    grep -E '^[a-z-]+:' printed.yaml | grep -vqE '# (default|chosen)' && fail "$command: $(grep -vE '# default' printed.yaml)"
    expect 0 "" "$ithaca" $command --config printed.yaml --print-config
    without_sources out >second
    without_sources printed.yaml >first
    same first second

    printf 'no-such: 1\n' >bad.yaml
    rest=""
    [ "$command" = tokenize ] && rest=x
    expect 1 "bad.yaml:1: no-such: there is no such option" "$ithaca" $command $rest --config bad.yaml
    expect 1 "bad.yaml:1: no-such: there is no such option" "$ithaca" $command $rest --config bad.yaml --print-config
    [ -s out ] && fail "$command prints in spite of an error"
    expect 1 "lacking.yaml: No such file" "$ithaca" $command $rest --config lacking.yaml
done

# Values of all kinds are printed as they were given.
cat >kinds.yaml <<'END'
seq: [64, 128, 96]   # a list
strategy: [single, ulysses_ring]
softmax: online,fixed_m
timeout: 0.30000000000000004
json: true
heads:
head-dim: ~
repeat: null
END
expect 0 "" "$ithaca" bench attention --config kinds.yaml --print-config --batch 7 --trace 'a "b" \ c'
for line in 'seq: \[64, 128, 96\] +# kinds.yaml:1' 'strategy: "single,ulysses_ring" +# kinds.yaml:2' \
    'softmax: \[online, fixed_m\] +# kinds.yaml:3' 'timeout: 0.30000000000000004 +# kinds.yaml:4' \
    'json: true +# kinds.yaml:5' 'heads: 8 +# default: 8' 'head-dim: 128 +# default: 128' 'repeat: .* # default.*' 'batch: \[7\] +# command line' \
    'trace: "a \\"b\\" \\\\ c" +# command line'; do
    grep -qE "^$line\$" out || fail "no line '$line': $(cat out)"
done
for null in Null NULL; do
    echo "timeout: $null" >null.yaml
    expect 0 "" "$ithaca" bench attention --config null.yaml --print-config
    grep -qE '^timeout: .*# default' out || fail "$null is a value: $(grep ^timeout out)"
    echo "strategy: '$null'" >null.yaml
    expect 0 "" "$ithaca" bench attention --config null.yaml --print-config
    grep -qE "^strategy: \"$null\" +# null.yaml:1\$" out || fail "'$null' in quotes is no text: $(grep ^strategy out)"
done
expect 1 "kinds.yaml:2: strategy: its value is not a single one" bash -c \
    'sed "s/\[single, ulysses_ring\]/{a: b}/" kinds.yaml >other-kinds.yaml; exec "$0" bench attention --config other-kinds.yaml' "$ithaca"

# A list has 16 items at most; its items have less than 64 characters.
items=$(seq -s ', ' 16)
echo "seq: [$items]" >sixteen.yaml
expect 0 "" "$ithaca" bench attention --config sixteen.yaml --print-config
grep -qE "^seq: \\[$items\\] +# sixteen.yaml:1\$" out || fail "16 items: $(grep ^seq out)"
expect 2 "--seq: '0{63}1' is not a list" "$ithaca" bench attention --seq "$(printf '0%.0s' {1..63})1" --print-config

printf 'solver: dpm++\n' >solver.yaml
expect 0 "" "$ithaca" generate --config solver.yaml --print-config
grep -qE '^solver: dpm\+\+ +# solver.yaml:1$' out || fail "no solver: $(cat out)"

# Every mistake is reported with its file and its line, and with the nearest thing that works.
# mistake TEXT WORDS: line 2 of a file is TEXT (as printf writes it).
mistake() {
    printf "steps: 3\n$1\n" >mistake.yaml
    expect 1 "^ithaca: mistake.yaml:2: $2\$" "$ithaca" generate --config mistake.yaml --print-config
}
mistake 'block_q: 6' 'block_q: there is no such option; the nearest is block-q'
mistake 'Seed: 6' 'Seed: there is no such option; the nearest is seed'
mistake 'guidence: 6' 'guidence: there is no such option; the nearest is guidance'
mistake 'sampling:\n  seed: 6' 'sampling: there is no such option; a file has no sections'
mistake 'zebra: 6' 'zebra: there is no such option'
mistake 'help: true' 'help: only the command line sets it'
mistake '\tseed: 6' 'a tab stands before the text; YAML indents with spaces'
mistake 'prompt: \xff' 'invalid leading UTF-8 octet'
mistake 'prompt: \001' 'control characters are not allowed'
mistake 'prompt: "a\\0b"' 'prompt: its value has a NUL character'
mistake 'lora: ["a,b.safetensors"]' 'lora: an item of its list has a comma'
mistake 'lora: [{a: b}]' 'lora: an item of its list is not a single value'
for list in '["", 3]' '[3, ""]' '[~]' '[3, null]' '[3, NULL]'; do
    mistake "guidance: $list" "guidance: an item of its list is empty"
done
for name in guidance lora; do mistake "$name: []" "$name: its list is empty"; done
mistake 'guidance: 3, 4' "guidance: '3, 4' is not a number, or two with a comma and no space, from -100 to 100"
mistake 'prompt: a town: at night' "': ' stands where no key can begin; text with ': ' needs quotes"
mistake 'prompt: @x' 'the text begins with a character that YAML reserves; it needs quotes'
expect 2 "--softmax: 'online, fixed_m' is not a list with commas and no spaces of auto, online, fixed_m\$" "$ithaca" bench attention \
    --softmax "online, fixed_m"
# The end of a long text is left out, but never the reason.
mistake "frames: $(printf '7%.0s' {1..300})" "frames: '7{80}\.\.\.' is not a whole number from 1 to [0-9]+"
mistake "solver: x$(printf '\\xc3\\xa9%.0s' {1..100})" "solver: 'x(é){39}\.\.\.' is none of auto, unipc, euler, dpm[+][+]"
# If a mistake is found lines after its cause, the line of the cause is named, too.
# later TEXT WORDS: a file is TEXT.
later() {
    printf "$1" >later.yaml
    expect 1 "^ithaca: later.yaml:$2\$" "$ithaca" generate --config later.yaml --print-config
}
later 'prompt: "a town\nseed: 1\nsteps: 3\n' '4: found unexpected end of stream while scanning a quoted scalar, which begins in line 1'
later 'steps: 3\nlora: [a, b\nseed: 1\n' "3: did not find expected ',' or ']' while parsing a flow sequence, which begins in line 2"
later 'steps: 3\nseed:1\n' "3: could not find expected ':' while scanning a simple key, which begins in line 2"
later ' steps: 3\nseed: 1\n' '2: text follows the end of the mapping, whose keys all begin in one column'
later 'steps: 3\n...\nseed: 1\n' "3: text follows '...', which ends the file"
later 'steps: 3\n...\n\tseed\n' "3: text follows '...', which ends the file"
later 'steps: 3\n...\n"seed\n' "3: text follows '...', which ends the file"
later 'steps: 3\n...\n---\nseed: 1\n' '3: a second document begins; a file has one'
later 'steps:3\n' "1: the file: it is not a mapping of options to values, each 'NAME: VALUE' with a space behind the colon"
later 'steps = 3\n' "1: the file: it is not a mapping of options to values, each 'NAME: VALUE' with a space behind the colon"
mistake 'prompt: [[[[[[[x]]]]]]]' 'prompt: its value is not a single one'
mistake 'prompt: [[[[[[[[x]]]]]]]]' 'lists and mappings lie more than 8 deep in one another'
mistake 'seed: [3]' 'seed: its value is not a single one'
mistake 'seed: x' "seed: 'x' is not a whole number from 0 to 18446744073709551615"
mistake 'steps: 4' 'steps: it is set twice'

# If another part of the program refuses a value, its line is reported too.
# refused STATUS TEXT WORDS: a run with a file whose line 2 is TEXT. The kernel in plain C takes every block_q.
refused() {
    printf "steps: 3\n$2\n" >refused.yaml
    expect "$1" "$3" env -u ITHACA_CPU "$ithaca" generate --model "$model" --prompt x --dry-run --quiet --config refused.yaml
}
refused 2 'strategy: rin' "^ithaca generate: --strategy: .* \(refused.yaml:2 sets strategy\)\$"
refused 1 'frames: 4' '^ithaca: frames is 4; .* nearest are 1 and 5 \(refused.yaml:2 sets frames\)$'
refused 1 'block-q: 7' '^ithaca: --block-q is 7, .* nearest is [0-9]+ \(refused.yaml:2 sets block-q\)$'
refused 2 'fold: true\nno-fold: true' '^ithaca generate: --fold and --no-fold exclude each other \(refused.yaml:2 sets fold, refused.yaml:3 sets no-fold\)$'
refused 1 'trace: c.mp4\noutput: c.mp4' "--output and --trace name the same file, 'c.mp4' \(refused.yaml:3 sets output, refused.yaml:2 sets trace\)\$"
printf 'ranks: 3\nulysses: 2\n' >refused.yaml
expect 1 'ulysses is 2, and must divide .*1 \(refused.yaml:2 sets ulysses\)$' "$ithaca" generate --model "$model" --prompt x --dry-run --quiet \
    --config refused.yaml
expect 1 'frames is 4; .* 1 and 5$' "$ithaca" generate --model "$model" --prompt x --dry-run --quiet --config refused.yaml --frames 4
cp -r "$model" own && sed -i 's/^height: .*/height: 30/' own/ithaca.yaml
expect 1 'height is 30; .* 16 and 32 \(ithaca.yaml of the model folder, line 2, sets height\)$' "$ithaca" generate --model own \
    --prompt x --dry-run --quiet

# An area on the command line stands alone. A file may have an area and both sides, as --print-config writes them.
printf 'height: 32\nwidth: 48\n' >sides.yaml
expect 2 "^ithaca generate: --area chooses .*, and --height and --width are given: leave both or --area out \(sides.yaml:1 sets height, sides.yaml:2 sets width\)\$" \
    "$ithaca" generate --model /none --prompt x --config sides.yaml --area 9999
for side in height width; do
    expect 2 "and --$side is given: leave --$side or --area out\$" "$ithaca" generate --model /none --prompt x --area 9999 --$side 48
done
echo 'area: 9999' >>sides.yaml
expect 1 "/none" "$ithaca" generate --model /none --prompt x --config sides.yaml

# The choices of a plan, with its exchange
expect 0 "" "$ithaca" bench attention --seq 64 --ranks 2 --machine avx2-1gbit --print-config
grep -qE '^exchange: in_place +# chosen' out || fail "no exchange in force: $(grep exchange out)"

# Text with every character that YAML or a terminal could change.
text=$(printf 'tab\tline\nbell\ahash # colon: quote\x27 nel\xc2\x85 ls\xe2\x80\xa8 \xc3\xa4')
expect 0 "" "$ithaca" generate --prompt "$text" --print-config
cp out printed.yaml
expect 0 "" "$ithaca" generate --config printed.yaml --print-config
grep '^prompt' printed.yaml | sed 's/ *# command line$//' >first
grep '^prompt' out | sed 's/ *# printed.yaml:[0-9]*$//' >second
same first second

# Only the default of an option is printed as one.
expect 0 "" "$ithaca" generate --print-config
for name in cfg exchange dit dit-high lora; do
    grep -qE "^$name: .*# default$" out || fail "the default of --$name: $(grep "^$name:" out)"
done

# Values come from the command line, the file, the model folder, the model itself, or the defaults, in this order.
printf 'steps: 9\nguidance: [5, 4]\n' >run.yaml
expect 0 "" "$ithaca" generate --config run.yaml --model "$model" --guidance 2 --print-config
for line in 'guidance: \[2, 2\] +# command line' 'steps: 9 +# run.yaml:1' 'shift: 3 +# ithaca.yaml of the model folder, line 7' \
    'boundary: 0.875 +# the model.s own' 'crf: 18 +# default: 18'; do
    grep -qE "^$line\$" out || fail "no line '$line': $(cat out)"
done
cp -r "$model" bare && rm bare/ithaca.yaml
expect 0 "" "$ithaca" generate --model bare --print-config
grep -qE '^fps: [1-9][0-9]* +# the model.s own$' out || fail "the frames a second of the model: $(grep ^fps out)"
# A link to a file that is missing is no model without defaults of its own.
ln -s nowhere bare/ithaca.yaml
expect 1 "bare/ithaca.yaml: No such file or directory$" "$ithaca" generate --model bare --print-config
rm bare/ithaca.yaml
expect 0 "the model's own values are left open: .*/none" "$ithaca" generate --model /none --print-config
grep -qE '^steps: +# default$' out || fail "steps of a model that is not there: $(cat out)"
expect 2 "--guidance: '2,101' is not a number, or two with a comma" "$ithaca" generate --guidance 2,101 --print-config
expect 2 "--guidance: '101,2' is not a number, or two with a comma" "$ithaca" generate --guidance 101,2 --print-config
expect 0 "" "$ithaca" generate --seed 1 --seed 2 --print-config
grep -qE '^seed: 2 +# command line' out || fail "the last of two values does not count: $(grep seed out)"
expect 2 "--guidance: '0{63}3' is not a number" "$ithaca" generate --guidance "$(printf '0%.0s' {1..63})3" --print-config
expect 0 "" "$ithaca" generate --seed 18446744073709551615 --print-config
grep -qE '^seed: 18446744073709551615 +# command line' out || fail "the largest seed: $(grep seed out)"
expect 2 "--fold and --no-fold exclude each other" "$ithaca" generate --model /none --print-config --fold --no-fold

# Of two options that exclude each other, an option of the command line overrides an option of a file.
# overrides COMMAND OF-FILE OF-LINE[=VALUE] [VALUE OF-FILE]
overrides() {
    echo "$2: ${4:-true}" >opposite.yaml
    expect 0 "" "$ithaca" $1 --config opposite.yaml "--$3" --print-config
    grep -qE "^$2: +(false +)?# command line\$" out || fail "--$3 leaves '$(grep "^$2:" out)' of a file"
    grep -qE "^${3%=*}: [^ ]+ +# command line\$" out || fail "--$3 is not in force: $(grep "^$3:" out)"
}
for pair in "fold no-fold" "no-fold fold"; do
    for command in "attend" "plan --seq 8 --machine avx2-desktop" "bench attention --seq 8" "generate --model /none"; do
        overrides "$command" $pair
    done
done
overrides "generate --model /none" quiet verbose
overrides "generate --model /none" verbose quiet
overrides "bench attention --seq 8" json csv
overrides "bench attention --seq 8" csv json
overrides "generate --model /none" prompt prompts=list circle
echo "prompts: list" >opposite.yaml
expect 1 "none" "$ithaca" generate --model /none --config opposite.yaml --prompt circle
echo "noise: none.safetensors" >opposite.yaml
expect 1 "/none" "$ithaca" generate --model /none --config opposite.yaml --prompt circle --seed 3
echo "threads: 1" >opposite.yaml
expect 2 "--fold and --no-fold exclude each other" "$ithaca" plan --seq 8 --machine avx2-desktop --config opposite.yaml --fold --no-fold
echo "no-fold: true" >opposite.yaml
expect 0 "" "$ithaca" plan --seq 8 --heads 4 --machine avx2-desktop --config opposite.yaml --fold
printf 'fold: true\nno-fold: true\n' >opposite.yaml
expect 2 "--fold and --no-fold exclude each other" "$ithaca" plan --seq 8 --machine avx2-desktop --config opposite.yaml

know_machine
# The library's own choices are printed too, also the choices from wisdom. A run with the printed choices has the same plan.
tiny="--heads 4 --head-dim 32 --seq 100 --repeat 1 --threads 2 --wisdom wisdom"
for options in "" "--ranks 4" "--ranks 4 --strategy ring_bidir" "--ranks 2 --strategy ulysses --chunks 2 --softmax fixed_m"; do
    expect 0 "" "$ithaca" bench attention $tiny $options --effort measure --json
    cp out first.json
    expect 0 "" "$ithaca" bench attention $tiny $options --print-config
    cp out printed.yaml
    for choice in strategy ulysses ring direction chunks kernel block-q block-kv; do
        value=$(jq -r ".[0][\"${choice//-/_}\"]" first.json)
        grep -qE "^$choice: \"?$value\"? +# (wisdom|chosen by the library|command line)\$" printed.yaml ||
            [[ "$options" == *"--strategy ring_bidir"* && $choice = strategy ]] ||
            fail "$options: $choice is not $value: $(grep "^$choice:" printed.yaml)"
    done
    expect 0 "" "$ithaca" bench attention --config printed.yaml --json
    for choice in strategy ulysses ring direction chunks softmax kernel block_q block_kv block_kv_compute block_kv_compute_in; do
        [ "$(jq ".[0].$choice" out)" = "$(jq ".[0].$choice" first.json)" ] || fail "$options: the printed $choice gives another"
    done
done

# Characters that YAML does not allow are escaped. Bytes that are no UTF-8 cannot be escaped: '?' stands for them, and a
# message says so.
text=$(printf 'a\xc2\x81\xc2\x9fb\xef\xbb\xbfc\xc3\xa9\xf0\x9f\x98\x80\xe2\x80\xa8d\xe2\x80\xa9e\xef\xbf\xbf\x7f\xef\xbf\xbd')
expect 0 "" "$ithaca" generate --print-config --prompt "$text" --output clip.mp4
cp out first.yaml
[ "$(grep ^prompt: first.yaml | sed 's/ *#.*//')" = "prompt: \"$(printf 'a\\u0081\\u009fb\\ufeffc\xc3\xa9\xf0\x9f\x98\x80\\Ld\\Pe\\uffff\\x7f\xef\xbf\xbd')\"" ] ||
    fail "characters that YAML lacks: $(grep ^prompt: first.yaml)"
expect 0 "" "$ithaca" generate --config first.yaml --print-config
[ "$(grep ^prompt first.yaml | sed 's/ *#.*//')" = "$(grep ^prompt out | sed 's/ *#.*//')" ] || fail "another prompt: $(grep ^prompt out)"
expect 0 "" "$ithaca" generate --print-config --prompt $'caf\xe9' --output $'clip\xff.mp4'
grep -q "^prompt: \"caf?\" *# command line; '?' stands for bytes that are no UTF-8\$" out || fail "$(grep -a ^prompt out)"
grep -q "^output: \"clip?.mp4\"" out || fail "$(grep -a ^output out)"
cp out second.yaml
expect 0 "" "$ithaca" generate --config second.yaml --print-config
for bytes in '\xc0\x80' '\xc1\xbf' '\xe0\x9f\xbf' '\xed\xa0\x80' '\xf0\x8f\xbf\xbf' '\xf4\x90\x80\x80' '\xf5\x80\x80\x80' '\xe2\x82' '\x80'; do
    expect 0 "" "$ithaca" generate --print-config --prompt "$(printf "a$bytes")z"
    grep -qE "^prompt: \"a[?]+z\" *# command line; '[?]' stands for" out || fail "$bytes: $(grep -a ^prompt out)"
done

# An option from the file has an effect, and the command line counts more.
printf 'heads: 2\nhead-dim: 32\nseq: 40\nrepeat: 1\njson: true\nthreads: 1\n' >small.yaml
expect 0 "" "$ithaca" bench attention --config small.yaml --seq 50
jq -e '.[0].heads == 2 and .[0].head_dim == 32 and .[0].seq == 50 and .[0].threads == 1' out >/dev/null || fail "$(cat out)"
finish
