#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --device: on a machine without a device each command says so in one sentence. On the fake device (tests/gpu/fake)
# attend, verify, bench and info compute as on the processor.
. cli/lib.sh
cd "$work"
know_machine
input=$golden/attention/one_row.safetensors
commands=("attend --input $input --output o" "verify --seq 8" "bench attention --seq 8" "info")

one_line() { [ "$(wc -l <err)" = 1 ] || fail "$(wc -l <err) lines on standard error: $(head -c 300 err)"; }

# Without a module, and with a name that is no device.
for command in "${commands[@]}"; do
    expect 1 "no module ithaca_device_cuda.so was found" env ITHACA_PLUGIN_PATH= "$ithaca" $command --device cuda
    one_line
    for name in gpu:x gpu:3 cpu:0; do
        expect 2 "--device: the device '$name' is none of cpu, cuda and cuda:N" "$ithaca" $command --device $name
    done
done
expect 2 "--device cuda: tune measures processors" "$ithaca" tune --device cuda
expect 2 "--machine describes processors" "$ithaca" bench attention --device cuda --machine local
expect 0 "" env ITHACA_PLUGIN_PATH= "$ithaca" info
grep -A1 '^devices' out | grep -q 'cuda .*no module ithaca_device_cuda.so' || fail "info does not say why there is no device"

# The module for NVIDIA GPUs when all GPUs are hidden.
if [ -e "$build/ithaca_device_cuda.so" ]; then
    for command in "${commands[@]}"; do
        expect 1 "cuda:0: " env CUDA_VISIBLE_DEVICES= ITHACA_PLUGIN_PATH="$build" "$ithaca" $command --device cuda
        one_line
    done
fi

export ITHACA_PLUGIN_PATH=$build/tests/modules/devices
expect 0 "" "$ithaca" info --json
python3 - out <<'END' || fail "info --json names other devices"
import json, sys
info = json.load(open(sys.argv[1]))
assert [d["name"] for d in info["devices"]] == [f"fake:{i}" for i in range(4)], info["devices"]
assert all("1.1 GB" in d["about"] and "ithaca_device_fake.so" in d["about"] for d in info["devices"])
END
expect 0 "" "$ithaca" info --device fake --json
python3 - out <<'END' || fail "info --device names other kernels"
import json, sys
kernels = {k["name"]: k for k in json.load(open(sys.argv[1]))["kernels"]}
assert sorted(kernels) == ["16bit_fake", "f32_fake"], kernels
assert kernels["f32_fake"]["f32_gflops"] > 0 and kernels["f32_fake"]["peak_gflops"] > 0
assert kernels["16bit_fake"]["bf16_gflops"] > 0 and "f32_gflops" not in kernels["16bit_fake"]
END

# Every plan is within its bounds, in each of the orders in which the fake devices run operations.
for device in fake:0 fake:1 fake:2 fake:3; do
    expect 0 "" "$ithaca" verify --device $device --seq 23 --heads 3 --head-dim 16 --ranks 3 --mask lengths
done
expect 0 "" "$ithaca" verify --device fake:1 --seq 19 --batch 1 --kv-heads 2 --heads 4 --head-dim 8 --ranks 4 --dtype f32 \
    --mask additive --json
python3 - out <<'END' || fail "verify --device has other plans"
import json, sys
plans = json.load(open(sys.argv[1]))["problems"][0]["plans"]
assert len(plans) == 18 and all(p["verdict"] == "ok" and p["kernel"] == "f32_fake" for p in plans)
assert all(p["exchange"] in ("copy", "-") for p in plans)
END
for file in "$golden"/attention/*.safetensors; do
    expect 0 "" "$ithaca" attend --input "$file" --output there --device fake:3 --ranks 3 --quiet
    expect 0 "" "$ithaca" attend --input "$file" --output here --quiet
    python3 - here there <<'END' || fail "attend --device: $file"
import json, math, struct, sys
def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    result = []
    for name in ("o", "lse"):
        begin, end = header[name]["data_offsets"]
        raw, kind = data[8 + size + begin:8 + size + end], header[name]["dtype"]
        if kind == "BF16":
            raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
        result.append(struct.unpack(f"<{len(raw) // (2 if kind == 'F16' else 4)}{'e' if kind == 'F16' else 'f'}", raw))
    return result
for here, there in zip(read(sys.argv[1]), read(sys.argv[2])):
    norm = sum(x * x for x in here if math.isfinite(x))
    assert sum((x - y) ** 2 for x, y in zip(here, there) if x != y) <= 3e-5 * norm
END
done
expect 1 "exchange is in_place, and on the device fake:0" "$ithaca" attend --input "$input" --output o --device fake --ranks 2 \
    --exchange in_place
expect 1 "no kernel of the device fake:0 is named 'f32_ref'" "$ithaca" attend --input "$input" --output o --device fake \
    --kernel f32_ref

# Rows of a benchmark on a device name the device and have no prediction. Their peak is the rate of its matrix products.
expect 0 "" "$ithaca" bench attention --device fake:2 --seq 24 --heads 4 --head-dim 16 --ranks 2 --strategy single,ring,ulysses \
    --repeat 2 --json
cp out rows.json
python3 - rows.json <<'END' || fail "bench --device has other rows"
import json, sys
rows = json.load(open(sys.argv[1]))
assert [r["name"] for r in rows] == ["single", "ring", "ulysses"]
for r in rows:
    assert r["device"] == "fake:2" and r["kernel"] == "16bit_fake" and r["device_memory_bytes"] > 0
    assert r["peak_gflops"] > 0 and r["share_of_peak"] > 0 and r["predicted_seconds"] is None
    assert r["gflops"] > 0 and r["seconds"] > 0 and 0 < r["rel_l2"] < 1e-2
END
expect 0 "" "$ithaca" bench attention --device fake:2 --seq 24 --heads 4 --head-dim 16 --ranks 2 --strategy single,ring,ulysses \
    --repeat 2 --compare rows.json
grep -q '^single .*fake:2 .*\(same\|faster\|slower\)' out || fail "rows of a device are not compared"
expect 0 "" "$ithaca" bench block --device fake:2 --size 1.3b --seq 8 --repeat 1 --precision f32 --json
jq -e 'all(.[]; .device == "fake:2")' out >/dev/null || fail "a row of bench block does not name its device"
python3 - out <<'END' || fail "bench block --device"
import json, sys
stages = {s["stage"]: s for s in json.load(open(sys.argv[1]))}
assert stages["block"]["peak"] == "f32 products on fake:2" and 0 < stages["ffn"]["peak_gflops"], stages
END
echo "device: fake:1" >device.yaml
expect 0 "" "$ithaca" bench attention --seq 24 --heads 4 --config device.yaml --print-config
grep -q '^device: "fake:1" *# device.yaml' out || fail "a file sets no device: $(grep device out)"
grep -q '^kernel: "16bit_fake" *# chosen by the library' out || fail "the kernel of a device: $(grep kernel out)"
expect 0 "" "$ithaca" attend --input "$input" --output o --config device.yaml --plan --trace trace.json
grep -q 'on fake:1' err || fail "the plan names no device: $(cat err)"
grep -q '"attend"' trace.json || fail "the trace has no computing"

# A run streams layers if it may take less memory of the device than the weights need.
expect 2 "--device-memory needs --device" "$ithaca" generate --model "$model" --prompt x --device-memory 30
expect 2 "--device-memory needs --device" "$ithaca" generate --model "$model" --prompt x --device cpu --device-memory 30
expect 0 "" "$ithaca" generate --model "$model" --prompt "a red square" --frames 1 --height 32 --width 32 --steps 1 --device fake:2 \
    --precision f32 --device-memory 20 --output small.gif --json --verbose
grep -q "fake:2 has no room for 4 of the transformer's layers" err || fail "no line about streamed layers: $(cat err)"
python3 - out <<'END' || fail "the report of streamed layers"
import json, sys
memory = json.load(open(sys.argv[1]))["memory"]
assert memory["streamed_layers"] == 4 and 0 < memory["predicted_device_bytes"] <= 20e6, memory
END
expect 1 "this run needs at least " "$ithaca" generate --model "$model" --prompt x --frames 1 --height 32 --width 32 --steps 1 \
    --device fake --device-memory 2 --output small.gif
finish
