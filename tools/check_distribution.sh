#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and tests the last commit on another version of Debian or Ubuntu. debootstrap installs this version into FOLDER
# if it is not there yet; with the build it takes 4 GB. Needs root, and debootstrap with the keys of the distribution.
#
#     tools/check_distribution.sh trixie http://deb.debian.org/debian FOLDER [COMMAND...]
#     tools/check_distribution.sh noble http://archive.ubuntu.com/ubuntu FOLDER [COMMAND...]
#
# COMMAND runs in the clone; it is `make check` if left out.
set -eu
[ $# -ge 3 ] || { echo "check_distribution.sh: SUITE MIRROR FOLDER [COMMAND...] is needed" >&2; exit 2; }
suite=$1 mirror=$2
mkdir -p "$3"
folder=$(cd "$3" && pwd)
shift 3
[ $# -gt 0 ] || set -- make check
source=$(cd "$(dirname "$0")/.." && pwd)
components=main
[[ $mirror != *ubuntu* ]] || components=main,universe

[ -e "$folder/etc/os-release" ] ||
    debootstrap --variant=minbase --components=$components --include=ca-certificates,git,make "$suite" "$folder" "$mirror"
cp /etc/resolv.conf "$folder/etc/"
rm -rf "$folder/root/source"
git clone -q "$source" "$folder/root/source"

# The mounts end with the namespace. /dev/shm is of its own, so that no test sees segments of other programs.
exec unshare -m bash -c '
    set -eu
    mount --bind "$0" "$0"
    for place in proc sys dev; do mount --rbind /$place "$0/$place"; done
    mount -t tmpfs tmpfs "$0/dev/shm"
    exec chroot "$0" /usr/bin/env -i HOME=/root TERM="${TERM:-dumb}" PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -c "
        cd ~/source && exec \"\$0\" \"\$@\"" "$@"' "$folder" "$@"
