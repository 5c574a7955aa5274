#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the guide in docs/guide:
#
#   tools/make_guide.sh figures BUILD FOLDER   the drawings of schedules, as SVG files in FOLDER
#   tools/make_guide.sh site FOLDER            the guide and the other pages of docs as HTML pages in FOLDER
#
# BUILD is the build folder, whose draw_schedule draws the schedules that the library executes. The site needs cmark-gfm.
set -eu
root=$(realpath "$(dirname "$0")/..")

# The drawings: a name, and the arguments of draw_schedule.
figures() {
    cat <<'EOF'
holdings-ulysses      holdings 4 4 64 strategy=ulysses
holdings-ring         holdings 4 4 64 strategy=ring
holdings-2d           holdings 4 4 64 strategy=ulysses_ring ulysses=2
timeline-ulysses      timeline 4 4 64 strategy=ulysses
timeline-chunks       timeline 4 16 64 strategy=ulysses chunks=4
timeline-ring         timeline 4 4 64 strategy=ring
timeline-bidir        timeline 4 4 64 strategy=ring_bidir
timeline-2d           timeline 4 8 64 strategy=ulysses_ring ulysses=2
timeline-2d-chunks    timeline 4 8 64 strategy=ulysses_ring ulysses=2 chunks=2
EOF
}

make_figures() {
    mkdir -p "$2"
    figures | while read -r name arguments; do
        # shellcheck disable=SC2086 # the arguments are words
        "$1/draw_schedule" $arguments >"$2/$name.svg"
    done
}

# A page of HTML from a page of Markdown; links to pages of the guide lead to pages of the site.
make_page() {
    title=$(sed -n 's/^# //p;T;q' "$1")
    cat <<EOF
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 sans-serif; color: #222 }
pre, code { font-family: monospace; background: #f4f4f4 } pre { padding: .6rem; overflow-x: auto }
table { border-collapse: collapse } th, td { border: 1px solid #ccc; padding: .2rem .6rem; text-align: left }
img { max-width: 100% }
</style></head><body>
<p><a href="index.html">Guide</a></p>
EOF
    cmark-gfm --extension table "$1" | sed -E 's/href="([^":]*)README\.md/href="\1index.html/g; s/href="([^":]+)\.md/href="\1.html/g'
    echo "</body></html>"
}

make_site() {
    command -v cmark-gfm >/dev/null || { echo "make_guide: the site needs cmark-gfm: apt-get install cmark-gfm" >&2; exit 1; }
    mkdir -p "$1/guide"
    cp -r "$root/docs/guide/figures" "$1/guide/"
    for page in "$root"/docs/guide/*.md; do
        name=$(basename "$page" .md)
        [ "$name" != README ] || name=index
        make_page "$page" >"$1/guide/$name.html"
    done
    for page in "$root"/docs/*.md; do
        make_page "$page" | sed 's|href="index.html"|href="guide/index.html"|' >"$1/$(basename "$page" .md).html"
    done
    echo "The first page is $(realpath "$1")/guide/index.html"
}

case "${1:-} $#" in
"figures 3") make_figures "$2" "$3" ;;
"site 2") make_site "$2" ;;
*) sed -n 's/^# \{0,1\}//p' "$0" | sed -n '2,8p' >&2; exit 2 ;;
esac
