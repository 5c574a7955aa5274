#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every option of every command, as --help lists them: strange values are refused with a sentence; the man page names
# the same options; a command does not wait for files that are not regular. ITHACA_STRANGE=all: each option gets every
# strange value, otherwise two of them in turn.
. cli/lib.sh
cd "$work"
commands="generate attend verify plan bench info tokenize"

# options COMMAND: "NAME ARGUMENT" for each long option.
options() { "$ithaca" "$1" --help | grep -oE -- '--[a-z][a-z-]*(=[^ ]+)?' | sed -E 's/^--//; s/=/ /' | sort -u; }

# The other arguments of each command, with which it ends before it computes.
declare -A rest=([generate]="--model /none --prompt x" [attend]="--input /none --output o" [verify]="--kernel none"
                 [plan]="--seq 16 --machine none"
                 [bench]="attention --kernel none" [info]="--model /none" [tokenize]="--model /none x")

strange=(nan x "" 1e18) asked=0 each=2
[ "${ITHACA_STRANGE:-}" != all ] || each=4
for command in $commands; do
    while read -r option argument; do
        [[ $argument =~ ^(N|X|G)(\[|$) ]] || continue
        for ((i = 0; i < each; i++)); do
            value=${strange[asked++ % 4]}
            expect 2 "--$option: '.*' is not a" timeout 60 "$ithaca" $command ${rest[$command]} "--$option=$value"
        done
        for value in -1 0; do
            status=0
            timeout 60 "$ithaca" $command ${rest[$command]} "--$option=$value" >out 2>err </dev/null || status=$?
            [[ $status = [12] && -s err ]] || fail "$command --$option=$value: exit status $status: $(head -c 300 err)"
        done
    done < <(options $command)
done

# More threads than --threads allows, than OMP_NUM_THREADS may ask for, and than the system can start.
for command in generate attend verify bench info; do
    expect 2 "--threads: '65536' is not a whole number from 1 to 4096" "$ithaca" $command ${rest[$command]} --threads 65536
    [ $command = info ] || expect 1 "OMP_NUM_THREADS asks for 100000 threads: at most 4096" env OMP_NUM_THREADS=100000 OMP_THREAD_LIMIT=100000 \
        "$ithaca" $command ${rest[$command]}
done
has_sanitizer || OMP_WAIT_POLICY=passive expect 1 "300 threads on 4 ranks may need 600 more.* lets this process start [0-9]+ .*ulimit" bash -c \
    'ulimit -v 2000000; exec "$@"' - "$ithaca" verify --seq 16 --threads 300
expect 1 "the number of ranks in this process is 2, and this process may have at most 1 thread$" \
    env OMP_THREAD_LIMIT=1 "$ithaca" generate --model "$model" --prompt x --ranks 2

# Under any limit on the threads of a user, a run is refused with a sentence, or it makes the same video as without.
run=(generate --model "$model" --prompt x --height 32 --width 32 --frames 1 --steps 1 --quiet --output made/clip.mp4)
user=$((50000 + RANDOM % 10000))
mkdir -m 777 made
chmod 755 .
as_user() { # LIMIT OPTION...
    bash -c 'ulimit -u $1; shift; exec setpriv --reuid '$user' --clear-groups "$@"' - "$1" "$ithaca" "${run[@]}" "${@:2}"
}
if [ $(id -u) = 0 ] && as_user 1000; then
    mv made/clip.mp4 whole.mp4
    for options in "--threads 2" "--ranks 4 --threads 4"; do
        refused=0 made=0
        for limit in $(seq 1 2 45); do
            if as_user $limit $options >out 2>err; then
                same made/clip.mp4 whole.mp4
                made=$((made + 1))
            else
                grep -q "^ithaca: .* may need .* more than there are" err || fail "$options, $limit threads: $(cat err)"
                refused=$((refused + 1))
            fi
            rm -f made/clip.mp4
            [ -z "$(ls -A made)" ] || fail "$options, $limit threads: left behind: $(ls -A made)"
        done
        [ $refused -gt 3 ] && [ $made -gt 3 ] || fail "$options: $refused refused, $made made"
    done
fi
for command in generate attend bench; do
    expect 2 "--ranks: '1025' is not a whole number from 1 to 1024" "$ithaca" $command ${rest[$command]} --ranks 1025
done

# The man page of a command names the options that it has, and no others.
for command in $commands; do
    sed -E 's/\\-/-/g; s/\\f[A-Z]//g' "$root/docs/man/ithaca-$command.1" >page
    grep -A1 '^\.TP' page | grep -oE -- '--[a-z-]+' | sort -u >man
    options $command | sed -E 's/^([^ ]+).*/--\1/' | sort -u >help
    diff help man || fail "the man page of $command names other options"
done

# Pipes, sockets and folders, as inputs and as outputs: refused at once.
mkfifo pipe
mkdir folder
input=$golden/attention/one_row.safetensors
for file in pipe folder; do
    expect 1 "'$file' cannot be written: it is a" timeout 60 "$ithaca" generate --model "$model" --prompt x --dump $file
    expect 1 "'$file' cannot be written: it is a" timeout 60 "$ithaca" generate --model "$model" --prompt x --trace $file
    expect 1 "$file: it is not a file" timeout 60 "$ithaca" generate --model "$model" --prompt x --config $file
    expect 1 "cannot read $file: it is a" timeout 60 "$ithaca" generate --model "$model" --prompt x --noise $file
    expect 1 "cannot read $file: it is a" timeout 60 "$ithaca" generate --model "$model" --from-latents $file --output c.mp4
    expect 1 "cannot read $file: it is a" timeout 60 "$ithaca" attend --input $file --output o
    expect 1 "'$file' cannot be written: it is a" timeout 60 "$ithaca" attend --input "$input" --output $file
    expect 1 "'$file' cannot be written: it is a" timeout 60 "$ithaca" attend --input "$input" --output o --trace $file
    expect 1 "'$file' cannot be written: it is a" timeout 60 "$ithaca" attend --input "$input" --output o --wisdom $file
done
ln -s pipe clip.mp4
expect 1 "'clip.mp4' cannot be written: it is not an ordinary file" timeout 60 "$ithaca" generate --model "$model" --prompt x \
    --output clip.mp4
rm clip.mp4
[ -p pipe ] || fail "the pipe was replaced"

# Names that become too long with an ending, and missing folders, are reported before the command computes.
long=$(printf 'x%.0s' $(seq 240))
expect 1 "$long-0123456789.json' cannot be written: File name too long" timeout 60 "$ithaca" generate --model /none --prompt x \
    --trace "$long-0123456789.json"
expect 0 "" "$ithaca" attend --input "$input" --output "$long-0123456789" # its temporary file gets a shorter name
expect 1 "'none/o' cannot be written: its folder does not exist" "$ithaca" attend --input /none --output none/o
expect 1 "'none/[?]x' cannot be written" "$ithaca" attend --input /none --output $'none/\x9bx' # a byte that is no UTF-8
expect 1 "cannot open [?]x" "$ithaca" attend --input $'\x9bx' --output o
for option in output noise lora resume config image prompts; do
    expect 2 "--$option: an empty text names no file" "$ithaca" generate --model "$model" --prompt x --$option ""
done
echo 'noise: ""' >empty.yaml
expect 2 "--config is given twice" "$ithaca" generate --config empty.yaml --config empty.yaml
expect 1 "empty.yaml:1: noise: an empty text names no file" "$ithaca" generate --model "$model" --prompt x --config empty.yaml
expect 1 "'-' cannot be written: .*'./-' is a file" "$ithaca" attend --input "$input" --output -
expect 1 "'-' cannot be written: .*'./-' is a file" "$ithaca" attend --input "$input" --output o --trace -
expect 0 "" "$ithaca" attend --input "$input" --output ./-

# A folder with files is an output only if '/' ends its name; nothing is written into it.
touch folder/notes
expect 1 "'folder' is a folder that holds files: 'folder/' writes frames" "$ithaca" generate --model /none --prompt x --output folder
[ "$(ls -A folder)" = notes ] || fail "a file was left in the folder"

# Two outputs must not be the same file, and no output may replace an input.
expect 1 "--output and --trace name the same file, 'o'" "$ithaca" attend --input "$input" --output o --trace o
# "none" is no file for --wisdom alone.
expect 0 "" "$ithaca" attend --input "$input" --wisdom none --output none
expect 1 "--svg and --trace name the same file, 'none'" "$ithaca" bench attention --seq 8 --svg none --trace none
rm none
expect 0 "" "$ithaca" bench attention --seq 8 --heads 1 --repeat 1 --trace none --wisdom none
rm none
expect 1 "--dump and --trace name the same file, 'd'" "$ithaca" generate --model "$model" --prompt x --dump d --trace d
expect 1 "--dump and --trace name the same file" "$ithaca" generate --model "$model" --prompt x --dump d --trace ./d
know_machine
for command in "bench attention --seq 16 --heads 1 --repeat 1" "bench generate --model $model --prompt x" \
    "bench block --seq 16 --repeat 1" "verify --seq 8" "plan --seq 16" "tune --seq 16 --budget 1"; do
    outputs=$("$ithaca" $command --help | grep -oE -- '--(svg|trace|flight-record|wisdom|machine|compare)=' | tr -d = | sort -u)
    written=$(grep -xE -- '--(svg|trace|flight-record|wisdom)' <<<"$outputs")
    for one in $written; do
        for other in $outputs; do
            [[ $one < $other ]] || [[ $other = --machine || $other = --compare ]] || continue
            echo kept >both.yaml
            expect 1 "--[a-z-]+ and --[a-z-]+ name the same file, '(\./)?both.yaml'" timeout 60 "$ithaca" $command $one both.yaml \
                $other ./both.yaml
            [ "$(cat both.yaml)" = kept ] || fail "$command $one $other: the file was replaced"
        done
        echo "# nothing" >both.yaml
        expect 1 "$one and --config name the same file" timeout 60 "$ithaca" $command $one both.yaml --config both.yaml
    done
done
cp "$input" unchanged
expect 1 "--output and --input name the same file" "$ithaca" attend --input unchanged --output ./unchanged
ln -s unchanged link
expect 1 "--trace and --input name the same file" "$ithaca" attend --input unchanged --output o --trace link
same "$input" unchanged
cp "$golden/pictures/rgb.png" first.png
expect 1 "--preview and --image name the same file" "$ithaca" generate --model "$model" --prompt x --image first.png \
    --preview first.png
same "$golden/pictures/rgb.png" first.png
expect 1 "--dump and the latents name the same file" "$ithaca" generate --model "$model" --prompt x --output c.mp4 \
    --dump c.mp4.latents.safetensors
rm link
expect 0 "" "$ithaca" attend --input "$input" --output o

# If an output is a link, the link stays. The file behind it is replaced, or made if it is not there.
mkdir far
for name in there missing; do
    ln -s far/$name $name
    [ $name = missing ] || echo old >far/$name
    expect 1 "--output and --trace name the same file" "$ithaca" attend --input "$input" --output $name --trace far/$name
    expect 0 "" "$ithaca" attend --input "$input" --output $name
    same o far/$name
    [ $name = missing ] && rm far/$name
    expect 0 "" "$ithaca" bench attention --seq 16 --heads 1 --repeat 1 --svg $name
    grep -q "<svg" far/$name || fail "the picture is not behind the link $name"
    [ -L $name ] || fail "the link $name was replaced"
done
expect 0 "" "$ithaca" attend --input "$input" --output /dev/null

# The libraries name members of their structs; the program says the options.
expect 1 "^ithaca: --dit-low is missing: a model with two experts needs --dit-high and --dit-low$" "$ithaca" generate \
    --dit-high x --prompt x
expect 1 "^ithaca: --dit names the only transformer of a model, --dit-high and --dit-low the two experts .*: leave --dit " \
    "$ithaca" generate --dit x --dit-high x --prompt x
expect 1 "; --dit, --vae and --text-encoder name files$" "$ithaca" generate --model "$input" --prompt x
expect 1 "--dit-high is a/low_noise_dit_high, and --dit-low is" "$ithaca" generate --dit-high a/low_noise_dit_high \
    --dit-low high_noise --prompt x
finish
