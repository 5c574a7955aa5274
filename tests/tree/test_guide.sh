#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The guide: its drawings show the schedules that this library executes, its links lead to existing pages, and its
# commands run as they are written. The tools that any page calls can be executed.
set -u
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
complain() { echo "$*"; failures=$((failures + 1)); }

tools/make_guide.sh figures "$build" "$scratch/figures" || complain "the drawings could not be made"
for picture in "$scratch"/figures/*.svg; do
    cmp -s "$picture" "docs/guide/figures/$(basename "$picture")" ||
        complain "docs/guide/figures/$(basename "$picture") is not what tools/make_guide.sh makes"
done
for page in docs/guide/*.md; do
    for link in $(grep -oE '\]\([^)]+\)' "$page" | sed -E 's/^\]\(([^)#]*).*/\1/' | grep -v '^https:'); do
        [ -e "docs/guide/$link" ] || complain "$page: $link is not there"
    done
done
for picture in docs/guide/figures/*.svg; do
    grep -q "figures/$(basename "$picture")" docs/guide/*.md || complain "no page shows $picture"
done

for tool in $(grep -hoE '^ {4,}tools/[a-z_]+\.[a-z]+' README.md CONTRIBUTING.md docs/*.md docs/guide/*.md models/README.md | sort -u); do
    [ -x "$tool" ] || complain "$tool cannot be executed"
done

# The commands run in a new folder with links to the project's files.
for name in "$PWD"/*; do ln -s "$name" "$scratch/"; done
rm -f "$scratch/build" && ln -s "$build" "$scratch/build"
cd "$scratch"
export XDG_CACHE_HOME=$scratch/cache OMP_WAIT_POLICY=passive
while IFS=: read -r page command; do
    timeout 120 bash -c "$command" >"$scratch/out" 2>&1 ||
        complain "$page: '$command' ended with status $?: $(tail -n 2 "$scratch/out")"
done < <(grep -E '^ {4,}(build/ithaca|tools/draw_trace.py) ' docs/guide/*.md)

[ "$failures" = 0 ] && echo "the guide is right" || exit 1
