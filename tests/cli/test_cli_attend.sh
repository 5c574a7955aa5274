#!/usr/bin/env bash
# ithaca attend on the golden files (o within 2^-8, lse within 1e-5 of a float64 softmax), strategies against one
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
        BF16) od -An -v -w2 -t u2 | awk '{ s = $1 >= 32768 ? -1 : 1; e = int($1 / 128) % 256; m = $1 % 128
                                           print s * (e ? (1 + m / 128) * 2 ^ (e - 127) : m / 128 * 2 ^ -126) }' ;;
        esac
}

# close_to GOLDEN MINE TENSOR RELATIVE_L2 LARGEST_DIFFERENCE
close_to() {
    paste <(values "$1" "$3") <(values "$2" "$3") |
        awk -v l2="$4" -v most="$5" 'NF != 2 { bad = 1 }
            $1 != $2 { d = $2 - $1; a += d * d; if (d > most || -d > most || d != d) bad = 1 } { b += $1 * $1 }
            END { exit bad || NR == 0 || a > l2 * l2 * b }' || fail "$2: $3 is not that of $1"
}

# raw FILE: the data without the header, whose metadata says which plan it was.
raw() {
    tail -c +$((9 + $(od -An -t u8 -N 8 "$1"))) "$1"
}

for name in cross_d32 d72 gqa_d128 keymask_d64 one_row; do
    expect 0 "" "$ithaca" attend --input "$golden/attention/$name.safetensors" --output "$work/$name"
    header "$work/$name" | jq -e '.o.dtype == "BF16" and .lse.dtype == "F32"' >/dev/null || fail "$name: types"
    close_to "$golden/attention/$name.safetensors" "$work/$name" o 0.00390625 1000
    close_to "$golden/attention/$name.safetensors" "$work/$name" lse 1 1e-5
done

# attend OUTPUT OPTION...
attend() {
    local output=$1
    shift
    expect 0 "" "$ithaca" attend --input "$golden/attention/keymask_d64.safetensors" --output "$work/$output" "$@"
}
for ranks in 2 3 4; do
    attend u --ranks $ranks --strategy ulysses
    same <(raw "$work/keymask_d64") <(raw "$work/u")
    attend r --ranks $ranks --strategy ring
    close_to "$golden/attention/keymask_d64.safetensors" "$work/r" o 0.00390625 1000
    close_to "$golden/attention/keymask_d64.safetensors" "$work/r" lse 1 1e-5
done
attend m --ranks 4 --ulysses 2 --ring 2
close_to "$golden/attention/keymask_d64.safetensors" "$work/m" lse 1 1e-5
attend f --precision f32
close_to "$golden/attention/keymask_d64.safetensors" "$work/f" o 0.00390625 1000
attend b --precision bf16
same <(raw "$work/keymask_d64") <(raw "$work/b") # it is bf16 already
attend twice
same "$work/keymask_d64" "$work/twice"

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
refuse "at least 1" '{"q":{"dtype":"F32","shape":[1,0,1,2],"data_offsets":[0,0]}}' 0
refuse "must be of one" "{$q,$k,\"v\":{\"dtype\":\"F16\",\"shape\":[1,1,1,2],\"data_offsets\":[16,20]}}" 20
refuse "the shape of k" "{$q,$k,\"v\":{\"dtype\":\"F32\",\"shape\":[1,2,1,1],\"data_offsets\":[16,24]}}" 24
refuse "head size" "{$q,\"k\":{\"dtype\":\"F32\",\"shape\":[1,2,1,1],\"data_offsets\":[8,16]},\"v\":{\"dtype\":\"F32\",\"shape\":[1,2,1,1],\"data_offsets\":[16,24]}}" 24
refuse "mask.*i64" "{$q,$k,$v,\"mask\":{\"dtype\":\"I64\",\"shape\":[1,1,1,1],\"data_offsets\":[24,32]}}" 32
refuse "'mask' is of shape" "{$q,$k,$v,\"mask\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,2],\"data_offsets\":[24,26]}}" 26
refuse "kv_lengths.*f32" "{$q,$k,$v,\"kv_lengths\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[24,28]}}" 28
refuse "scale" "{\"__metadata__\":{\"scale\":\"wide\"},$q,$k,$v}" 24
refuse "scale" "{\"__metadata__\":{\"scale\":\"0\"},$q,$k,$v}" 24

# Everything masked: o = 0 and lse = -inf, from lengths of 0 as from a mask of false.
for mask in '"kv_lengths":{"dtype":"I32","shape":[1],"data_offsets":[24,28]}' \
    '"mask":{"dtype":"BOOL","shape":[1,1,1,1],"data_offsets":[24,25]}'; do
    make "{\"__metadata__\":{\"scale\":\"0.5\"},$q,$k,$v,$mask}" "$(echo "$mask" | sed -E 's/.*,([0-9]+)\].*/\1/')"
    expect 0 "" "$ithaca" attend --input "$work/in" --output "$work/empty"
    [ "$(values "$work/empty" lse | tr -d ' ')" = -inf ] || fail "lse of nothing is $(values "$work/empty" lse)"
    [ "$(values "$work/empty" o | tr -d ' \n')" = 00 ] || fail "o of nothing is $(values "$work/empty" o)"
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
[ -e "$work/none" ] && fail "an output in spite of a failure"
ls -A "$work" | grep -q partial && fail "something was left behind"
finish
