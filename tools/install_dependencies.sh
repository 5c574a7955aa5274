#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that building and testing need, on Debian or Ubuntu, and the packages named in PACKAGES. Does
# nothing if all are installed.
set -eu
packages="build-essential cmake ninja-build pkg-config clang lld libomp-dev
          libjansson-dev libsentencepiece-dev libabsl-dev libutf8proc-dev libyaml-dev
          libavformat-dev libavcodec-dev libavfilter-dev libswscale-dev libavutil-dev libcmocka-dev jq
          libopenmpi-dev openmpi-bin libmpich-dev mpich iproute2 locales python3 help2man ${PACKAGES:-}"
# to build and test for 64-bit ARM
[ "$(uname -m)" != x86_64 ] || packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"

missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "not a Debian system: please install the equivalents of$missing" >&2
    exit 1
fi
sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
echo "installing$missing" >&2
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
