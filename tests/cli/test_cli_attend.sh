#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ithaca attend on the golden files (o within 2^-8, lse within 1e-5 of a float64 softmax), strategies compared with one
# another, and files that it must refuse.
. cli/lib.sh

# header FILE: the JSON of a .safetensors file.
header() {
    local bytes
    bytes=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    tail -c +9 "$1" | head -c "$bytes"
}

# values FILE TENSOR: its numbers, one a line.
values() {
    local bytes type begin end
    bytes=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    read -r type begin end < <(header "$1" | jq -r ".[\"$2\"] | [.dtype, .data_offsets[]] | join(\" \")")
    tail -c +$((9 + bytes + begin)) "$1" | head -c $((end - begin)) |
        case $type in
        F32) od -An -v -w4 -t f4 ;;
        I32) od -An -v -w4 -t d4 ;;
        BF16) od -An -v -w2 -t u2 | awk '{ s = $1 >= 32768 ? -1 : 1; e = int($1 / 128) % 256; m = $1 % 128
                                           print s * (e ? (1 + m / 128) * 2 ^ (e - 127) : m / 128 * 2 ^ -126) }' ;;
        esac
}

# close_to GOLDEN MINE TENSOR RELATIVE_L2 LARGEST_DIFFERENCE, which is relative where values are larger than 1.
close_to() {
    paste <(values "$1" "$3") <(values "$2" "$3") |
        awk -v l2="$4" -v most="$5" 'NF != 2 { bad = 1 }
            $1 != $2 { d = $2 - $1; a += d * d; m = $1 * $1 > 1 ? sqrt($1 * $1) : 1
                       if (d > most * m || -d > most * m || d != d) bad = 1 } { b += $1 * $1 }
            END { exit bad || NR == 0 || a > l2 * l2 * b }' || fail "$2: $3 differs from $1"
}

# raw FILE: the data without the header, whose metadata says which plan it was.
raw() {
    tail -c +$((9 + $(od -An -t u8 -N 8 "$1"))) "$1"
}

# golden NAME OPTION...: the output must be within the bounds of the golden file.
golden() {
    local name=$1
    shift
    expect 0 "" "$ithaca" attend --input "$golden/attention/$name.safetensors" --output "$work/$name" "$@"
    close_to "$golden/attention/$name.safetensors" "$work/$name" o 0.00390625 1000
    close_to "$golden/attention/$name.safetensors" "$work/$name" lse 1 1e-5
}
# Every golden file without options, and with several combinations of options.
for file in "$golden"/attention/*.safetensors; do
    name=$(basename "$file" .safetensors)
    golden "$name"
    header "$work/$name" | jq -e '.o.dtype == "BF16" and .lse.dtype == "F32"' >/dev/null || fail "$name: types"
    golden "$name" --softmax fixed_m --ranks 3 --strategy ulysses --chunks 2
    golden "$name" --ranks 4 --strategy ulysses_ring_custom_bidir --exchange copy --no-fold
done
golden keymask_d64 --ranks 5 --strategy ring --direction bidir --softmax fixed_m --no-smoothing
golden ragged_d64 --kernel f32_ref --block-q 7 --block-kv 15 --block-kv-compute 5 --fold

# attend OUTPUT OPTION...
attend() {
    local output=$1
    shift
    expect 0 "" "$ithaca" attend --input "$golden/attention/keymask_d64.safetensors" --output "$work/$output" "$@"
}
for softmax in online fixed_m; do
    attend single --softmax $softmax
    for ranks in 2 3 4; do
        attend u --ranks $ranks --strategy ulysses --softmax $softmax
        same <(raw "$work/single") <(raw "$work/u")
    done
    attend u --ranks 3 --strategy ulysses --softmax $softmax --chunks 3 --exchange copy --no-fold --threads 5
    same <(raw "$work/single") <(raw "$work/u")
done
attend alias --ranks 2 --strategy ulysses_custom_fixed_m
same <(raw "$work/single") <(raw "$work/alias")
attend alias --ranks 2 --strategy ulysses_custom_fixed_m --softmax online
attend single --softmax online
same <(raw "$work/single") <(raw "$work/alias")
attend m --ranks 4 --ulysses 2 --ring 2
close_to "$golden/attention/keymask_d64.safetensors" "$work/m" lse 1 1e-5
for kernel in $("$ithaca" info --json | jq -r '.kernels[] | select(.usable and .bf16_gflops) | .name'); do
    golden gqa_d128 --kernel "$kernel" --ranks 2 --strategy ring
done
attend plain
attend f --precision f32
close_to "$golden/attention/keymask_d64.safetensors" "$work/f" o 0.00390625 1000
attend b --precision bf16
same <(raw "$work/plain") <(raw "$work/b") # the file's tensors are bf16
attend twice
same "$work/plain" "$work/twice"

# Messages are compressed only if an option asks for it. They change the result, and the error is printed.
attend p --ranks 2 --strategy ring --exchange copy
grep -q "compress" "$work/err" && fail "compression that nobody asked for: $(cat "$work/err")"
attend c --ranks 2 --strategy ring --exchange copy --compress 8bit
grep -qE "^compression changed the messages of rank 0 by [2-9]\.[0-9]e-03 \(relative error\)$" "$work/err" ||
    fail "the error of compression is not printed: $(cat "$work/err")"
cmp -s <(raw "$work/p") <(raw "$work/c") && fail "compression changes nothing"
expect 1 "compress is bf16, which is for tensors of f32" "$ithaca" attend --input "$golden/attention/keymask_d64.safetensors" \
    --output "$work/c" --ranks 2 --strategy ring --compress bf16

# --plan prints lines about the plan.
attend p --ranks 3 --strategy ring --direction bidir --plan --quiet
grep -q ring "$work/err" && grep -q bidir "$work/err" || fail "--plan says: $(cat "$work/err")"
grep -q "attention in" "$work/err" && fail "--quiet tells the time"
attend p --quiet
[ -s "$work/err" ] && fail "--quiet says: $(cat "$work/err")"
attend p
grep -q "attention in [0-9.]* s" "$work/err" || fail "nothing about the time"
attend p --wisdom "$work/wisdom"
[ -s "$work/wisdom" ] || fail "no wisdom was written"
cp "$work/wisdom" "$work/before"
attend p --wisdom "$work/wisdom"
same "$work/before" "$work/wisdom"
echo nonsense >"$work/no_wisdom"
expect 1 "no_wisdom" "$ithaca" attend --input "$golden/attention/keymask_d64.safetensors" --output "$work/none" \
    --wisdom "$work/no_wisdom"
[ "$(cat "$work/no_wisdom")" = nonsense ] || fail "a file that is no wisdom was written over"
# Wisdom that cannot be saved at the end costs no result.
mkdir "$work/barred.lock"
expect 1 "cannot write .*barred" "$ithaca" attend --input "$golden/attention/keymask_d64.safetensors" --output "$work/barred.o" \
    --wisdom "$work/barred"
grep -qx "The results are complete: $work/barred.o" "$work/err" && [ -s "$work/barred.o" ] || fail "the output is lost because wisdom cannot be saved"
rmdir "$work/barred.lock"
# A file that is there is only read, unless something is measured.
mkdir "$work/wisdom.lock.kept" && mv "$work/wisdom.lock" "$work/wisdom.lock.kept" && mkdir "$work/wisdom.lock"
attend p --wisdom "$work/wisdom"
same "$work/before" "$work/wisdom"
expect 1 "cannot write .*wisdom.lock" "$ithaca" attend --input "$golden/attention/keymask_d64.safetensors" --output "$work/o" \
    --wisdom "$work/wisdom" --effort measure
rmdir "$work/wisdom.lock"
if [ $(id -u) = 0 ] && setpriv --reuid 1000 --clear-groups "$ithaca" --version >/dev/null 2>&1; then
    chmod 755 "$work" && mkdir -m 777 "$work/open" && cp "$work/wisdom" "$work/open" && chmod 444 "$work/open/wisdom"
    as_user=(setpriv --reuid 1000 --clear-groups "$ithaca" attend --input "$golden/attention/keymask_d64.safetensors")
    expect 0 "" "${as_user[@]}" --output "$work/open/o" --wisdom "$work/open/wisdom"
    rm "$work/open/o"
    expect 1 "wisdom' cannot be written: Permission denied" "${as_user[@]}" --output "$work/open/o" \
        --wisdom "$work/open/wisdom" --effort measure
    [ -e "$work/open/o" ] && fail "attention was computed although its wisdom cannot be written"
fi
attend p --ranks 2 --strategy ring --trace "$work/trace.json"
jq -e '.traceEvents | length > 0' "$work/trace.json" >/dev/null || fail "no trace"

# put IN OUT NAME DTYPE SHAPE DATA RENAME: a .safetensors file with one tensor more; RENAME becomes "unused".
put() {
    local bytes end text
    bytes=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    end=$(($(stat -c %s "$1") - 8 - bytes))
    text=$(header "$1" | jq -c --arg name "$3" --arg type "$4" --argjson shape "$5" --argjson from $end \
        --argjson to $((end + $(stat -c %s "$6"))) --arg rename "${7:-}" \
        'with_entries(if .key == $rename then .key = "unused" else . end) |
            .[$name] = {dtype: $type, shape: $shape, data_offsets: [$from, $to]}')
    { printf "$(printf '\\x%02x\\x%02x' $((${#text} % 256)) $((${#text} / 256)))\\0\\0\\0\\0\\0\\0"
      printf '%s' "$text"; raw "$1"; cat "$6"; } >"$2"
}
# some COUNT BYTES: BYTES (as printf writes them) COUNT times.
some() { [ "$1" = 0 ] || printf "$2%.0s" $(seq "$1"); }

# Lengths given as a mask, as a bias of the keys and as numbers have the same result, with every strategy.
keys=140 queries=100 none='\0\0\200\377' # -infinity
lengths=$(values "$golden/attention/keymask_d64.safetensors" kv_lengths)
for length in $lengths; do some $queries "$(some "$length" '\\1')$(some $((keys - length)) '\\0')"; done >"$work/bool"
for length in $lengths; do some $queries "$(some "$length" '\\0\\0\\0\\0')$(some $((keys - length)) '\\0\\0\\200\\377')"; done >"$work/f32"
for length in $lengths; do some "$length" '\0\0\0\0'; some $((keys - length)) "$none"; done >"$work/bias"
input=$golden/attention/keymask_d64.safetensors
put "$input" "$work/with_bool" mask BOOL "[2,1,$queries,$keys]" "$work/bool" kv_lengths
put "$input" "$work/with_f32" mask F32 "[2,1,$queries,$keys]" "$work/f32" kv_lengths
put "$input" "$work/with_bias" key_bias F32 "[2,$keys]" "$work/bias" kv_lengths
for way in bool f32 bias; do
    for options in "" "--ranks 3 --strategy ring" "--ranks 4 --strategy ulysses_ring --softmax fixed_m --chunks 2"; do
        expect 0 "" "$ithaca" attend --input "$work/with_$way" --output "$work/o" $options
        close_to "$input" "$work/o" o 0.00390625 1000
        close_to "$input" "$work/o" lse 1 1e-5
    done
done

# A mask with one row for all queries has the result of a mask that has this row for each of them.
for length in $lengths; do some "$length" '\1'; some $((keys - length)) '\0'; done >"$work/row"
put "$input" "$work/with_row" mask BOOL "[2,1,1,$keys]" "$work/row" kv_lengths
put "$input" "$work/with_bias_row" mask F32 "[2,1,1,$keys]" "$work/bias" kv_lengths
for way in row bias_row; do
    expect 0 "" "$ithaca" attend --input "$work/with_$way" --output "$work/o" --ranks 3 --strategy ring
    close_to "$input" "$work/o" o 0.00390625 1000
    close_to "$input" "$work/o" lse 1 1e-5
done

# A mask that differs between queries and heads. A query that sees fewer keys has the result of a problem with fewer
# keys.
few=37
for head in 1 2 3; do
    for query in $(seq $queries); do
        length=$keys
        [ $(((head + query) % 3)) = 0 ] && length=$few
        some "$length" '\1'
        some $((keys - length)) '\0'
    done
done >"$work/bool"
for length in $few $keys; do
    printf "$(printf '\\x%02x' $length)\\0\\0\\0%.0s" 1 2 >"$work/lengths"
    put "$input" "$work/of_$length" kv_lengths I32 "[2]" "$work/lengths" kv_lengths
    expect 0 "" "$ithaca" attend --input "$work/of_$length" --output "$work/o_$length" --precision f32
done
put "$input" "$work/with_mask" mask BOOL "[1,3,$queries,$keys]" "$work/bool" kv_lengths
expect 0 "" "$ithaca" attend --input "$work/with_mask" --output "$work/o" --precision f32 --ranks 2 --strategy ring
paste <(values "$work/o" lse) <(values "$work/o_$few" lse) <(values "$work/o_$keys" lse) |
    awk -v n=$queries '{ head = int((NR - 1) / n) % 3 + 1; query = (NR - 1) % n + 1
        d = $1 - ((head + query) % 3 == 0 ? $2 : $3); if (d > 1e-5 || -d > 1e-5) bad = 1 } END { exit bad || NR != 6 * n }' ||
    fail "a mask that differs between queries"

# make HEADER BYTES: a .safetensors file of zeros.
make() {
    printf "$(printf '\\x%02x\\x%02x' $((${#1} % 256)) $((${#1} / 256)))\\0\\0\\0\\0\\0\\0" >"$work/in"
    printf '%s' "$1" >>"$work/in"
    head -c "$2" /dev/zero >>"$work/in"
}
# refuse WORDS HEADER BYTES
refuse() {
    make "$2" "$3"
    expect 1 "$1" "$ithaca" attend --input "$work/in" --output "$work/none"
    [ -e "$work/none" ] && fail "an output in spite of: $1"
}
q='"q":{"dtype":"F32","shape":[1,1,1,2],"data_offsets":[0,8]}'
k='"k":{"dtype":"F32","shape":[1,1,1,2],"data_offsets":[8,16]}'
v='"v":{"dtype":"F32","shape":[1,1,1,2],"data_offsets":[16,24]}'
refuse "there is no tensor 'v'" "{$q,$k}" 16
refuse "'q' is of shape \[2\]" '{"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 8
refuse "'q' is of type i32" '{"q":{"dtype":"I32","shape":[1,1,1,2],"data_offsets":[0,8]}}' 8
refuse "at least 1" '{"q":{"dtype":"F32","shape":[1,1,0,2],"data_offsets":[0,0]}}' 0
refuse "divides" "{\"q\":{\"dtype\":\"F32\",\"shape\":[1,1,3,2],\"data_offsets\":[0,24]},\"k\":{\"dtype\":\"F32\",\"shape\":[1,1,2,2],\"data_offsets\":[24,40]},\"v\":{\"dtype\":\"F32\",\"shape\":[1,1,2,2],\"data_offsets\":[40,56]}}" 56
refuse "'key_bias' is of shape" "{$q,$k,$v,\"key_bias\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[24,28]}}" 28
refuse "key_bias.*bool" "{$q,$k,$v,\"key_bias\":{\"dtype\":\"BOOL\",\"shape\":[1,1],\"data_offsets\":[24,25]}}" 25
refuse "must be of one" "{$q,$k,\"v\":{\"dtype\":\"F16\",\"shape\":[1,1,1,2],\"data_offsets\":[16,20]}}" 20
refuse "the shape of k" "{$q,$k,\"v\":{\"dtype\":\"F32\",\"shape\":[1,2,1,1],\"data_offsets\":[16,24]}}" 24
refuse "head size" "{$q,\"k\":{\"dtype\":\"F32\",\"shape\":[1,2,1,1],\"data_offsets\":[8,16]},\"v\":{\"dtype\":\"F32\",\"shape\":[1,2,1,1],\"data_offsets\":[16,24]}}" 24
refuse "mask.*i64" "{$q,$k,$v,\"mask\":{\"dtype\":\"I64\",\"shape\":[1,1,1,1],\"data_offsets\":[24,32]}}" 32
refuse "'mask' is of shape" "{$q,$k,$v,\"mask\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,2],\"data_offsets\":[24,26]}}" 26
refuse "kv_lengths.*f32" "{$q,$k,$v,\"kv_lengths\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[24,28]}}" 28
refuse "scale" "{\"__metadata__\":{\"scale\":\"wide\"},$q,$k,$v}" 24
refuse "scale" "{\"__metadata__\":{\"scale\":\"0\"},$q,$k,$v}" 24
refuse "in: metadata 'scale' is '1e39'" "{\"__metadata__\":{\"scale\":\"1e39\"},$q,$k,$v}" 24
refuse "in: metadata 'scale' is '\?\[2J'" "{\"__metadata__\":{\"scale\":\"\\u001b[2J\"},$q,$k,$v}" 24

# With all keys masked o = 0 and lse = -inf, with lengths of 0 and with a mask of false alike.
for mask in '"kv_lengths":{"dtype":"I32","shape":[1],"data_offsets":[24,28]}' \
    '"mask":{"dtype":"BOOL","shape":[1,1,1,1],"data_offsets":[24,25]}'; do
    make "{\"__metadata__\":{\"scale\":\"0.5\"},$q,$k,$v,$mask}" "$(echo "$mask" | sed -E 's/.*,([0-9]+)\].*/\1/')"
    expect 0 "" "$ithaca" attend --input "$work/in" --output "$work/empty"
    [ "$(values "$work/empty" lse | tr -d ' ')" = -inf ] || fail "lse of nothing is $(values "$work/empty" lse)"
    [ "$(values "$work/empty" o | tr -d ' \n')" = 00 ] || fail "o of nothing is $(values "$work/empty" o)"
done

# Problems without keys and without queries.
k0='"k":{"dtype":"F32","shape":[1,0,1,2],"data_offsets":[8,8]}'
make "{$q,$k0,\"v\":{\"dtype\":\"F32\",\"shape\":[1,0,1,2],\"data_offsets\":[8,8]}}" 8
expect 0 "" "$ithaca" attend --input "$work/in" --output "$work/empty"
[ "$(values "$work/empty" lse | tr -d ' ')" = -inf ] || fail "lse without keys is $(values "$work/empty" lse)"
make '{"q":{"dtype":"F32","shape":[1,0,1,2],"data_offsets":[0,0]},"k":{"dtype":"F32","shape":[1,1,1,2],"data_offsets":[0,8]},"v":{"dtype":"F32","shape":[1,1,1,2],"data_offsets":[8,16]}}' 16
expect 0 "" "$ithaca" attend --input "$work/in" --output "$work/empty" --ranks 2
header "$work/empty" | jq -e '.o.shape == [1,0,1,2] and .lse.shape == [1,1,0]' >/dev/null || fail "no queries"

# A file of 300 bytes without queries claims so many heads that a loop over them would never end.
for shape in 1,0,1099511627776,1 1099511627776,0,1,1; do
    none="{\"dtype\":\"F32\",\"shape\":[$shape],\"data_offsets\":[0,0]}"
    make "{\"q\":$none,\"k\":$none,\"v\":$none}" 0
    for options in "" "--softmax fixed_m" "--ranks 4 --strategy ulysses_ring --exchange copy"; do
        expect 0 "" timeout 60 "$ithaca" attend --input "$work/in" --output "$work/empty" $options
    done
done
none='{"dtype":"F32","shape":[1,0,4611686018427387904,4],"data_offsets":[0,0]}'
refuse "'q' is of shape \[1, 0, 4611686018427387904, 4\]; it must be smaller" "{\"q\":$none,\"k\":$none,\"v\":$none}" 0

# A tensor with a misspelled name is not used, and a message names it.
lengths='{"dtype":"I32","shape":[1],"data_offsets":[24,28]}'
make "{$q,$k,$v,\"kv_length\":$lengths}" 28
expect 0 "warning: $work/in: not used: tensor 'kv_length'; .*kv_lengths" "$ithaca" attend --input "$work/in" --output "$work/empty"
expect 0 "" "$ithaca" attend --input "$work/in" --output "$work/empty" --quiet
[ -s "$work/err" ] && fail "--quiet: $(cat "$work/err")"
expect 0 "" "$ithaca" attend --input "$golden/attention/one_row.safetensors" --output "$work/empty"
grep -q warning "$work/err" && fail "o and lse beside the inputs: $(cat "$work/err")"

# f16: two equal keys with the values 1 and 2 give the mean of the values, and an lse of log 2. There are more ranks
# than rows.
make '{"q":{"dtype":"F16","shape":[1,1,1,1],"data_offsets":[0,2]},"k":{"dtype":"F16","shape":[1,2,1,1],"data_offsets":[2,6]},"v":{"dtype":"F16","shape":[1,2,1,1],"data_offsets":[6,10]}}' 6
printf '\x00\x3c\x00\x40' >>"$work/in"
for options in "" "--precision f32" "--precision bf16" "--ranks 3 --strategy ring --softmax fixed_m"; do
    expect 0 "" "$ithaca" attend --input "$work/in" --output "$work/f16" $options
    header "$work/f16" | jq -e '.o.dtype == "F16"' >/dev/null || fail "o has another type than q"
    [ "$(raw "$work/f16" | tail -c 2 | od -An -t x2 | tr -d ' ')" = 3e00 ] || fail "f16 $options: $(raw "$work/f16" | od -An -t x2)"
    values "$work/f16" lse | awk '{ exit !($1 > 0.69314 && $1 < 0.69315) }' || fail "f16 $options: lse"
done

expect 1 "none.safetensors" "$ithaca" attend --input "$work/none.safetensors" --output "$work/none"
cp "$golden/attention/one_row.safetensors" "$work/cut"
truncate -s -1 "$work/cut"
expect 1 "/cut" "$ithaca" attend --input "$work/cut" --output "$work/none"
input=$golden/attention/keymask_d64.safetensors
expect 1 "nowhere" "$ithaca" attend --input "$input" --output "$work/nowhere/o"
expect 1 "No space left|/dev/full" "$ithaca" attend --input "$input" --output /dev/full
expect 1 "File too large" bash -c 'ulimit -f 8; exec "$@"' - \
    "$ithaca" attend --input "$input" --output "$work/none"
expect 1 "." "$ithaca" attend --input "$input" --output "$work/none" --kernel no_such_kernel
expect 1 "." "$ithaca" attend --input "$input" --output "$work/none" --ranks 4 --ulysses 3
expect 2 "strategy" "$ithaca" attend --input "$input" --output "$work/none" --strategy spiral
expect 1 "kernel" "$ithaca" attend --input "$input" --output "$work/none" --kernel ""
expect 1 "nowhere" "$ithaca" attend --input "$input" --output "$work/none" --wisdom "$work/nowhere/w"
expect 1 "nowhere" "$ithaca" attend --input "$input" --output "$work/none" --trace "$work/nowhere/t"
[ -e "$work/none" ] && fail "an output in spite of a failure"
ls -A "$work" | grep -q partial && fail "something was left behind"
finish
