#!/usr/bin/env bash
# Builds the Python packages into a folder: build.sh PROFILE [FOLDER], by default target/wheels.
#
# `tidegate` comes as a wheel with the program and as a source distribution, `scrapy-tidegate` as both too. With the
# profile `dev` the wheel takes the program that `make build` has built. MATURIN_ARGS adds to maturin's arguments.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${1:?usage: build.sh PROFILE [FOLDER]}
out=${2:-target/wheels}
tools=$PWD/target/python-tools/bin

rm -rf "$out"
mkdir -p "$out"
strip=(--strip)
if [ "$profile" = dev ]; then
  export CARGO=$PWD/python/cargo-workspace.sh
  strip=()
fi
# shellcheck disable=SC2086 # several arguments
"$tools/maturin" build --quiet --locked --profile "$profile" "${strip[@]}" --out "$out" ${MATURIN_ARGS:-}
"$tools/maturin" sdist --out "$out"
"$tools/python" -m build --no-isolation --outdir "$out" python/scrapy-tidegate >/dev/null
ls -1 "$out"
