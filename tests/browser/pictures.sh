#!/bin/sh
# Pictures of the pages of a demo: sh tests/browser/pictures.sh DEMO_FOLDER OUT_FOLDER
# Needs chromium, node and the npm packages of `make tools`.
set -eu
demo=$1 out=$2 here=$(dirname "$0")
mkdir -p "$out"
for theme in light dark; do
  for page in demo report pages/inspect pages/decode; do
    name=$(basename "$page")
    node "$here/shot.mjs" "$demo/$page.html" "$out/$name-$theme.png" "$theme" 1200 1500
    node "$here/shot.mjs" "$demo/$page.html" "$out/$name-$theme-phone.png" "$theme" 390 1600
  done
done
