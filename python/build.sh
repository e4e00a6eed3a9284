#!/usr/bin/env bash
# Builds the Python packages into a folder: build.sh PROFILE [FOLDER], by default target/wheels.
#
# `tidegate` comes as a wheel with the program and as a source distribution, `scrapy-tidegate` as both too. With the
# profile `dev` the wheel takes the program that `make build` has built.
#
# ZIG=1 links with zig, so that the wheel runs on systems as old as glibc 2.17 (manylinux2014). WHEEL_TARGET names
# another platform, such as aarch64-unknown-linux-gnu, and needs ZIG=1 and rustup.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${1:?usage: build.sh PROFILE [FOLDER]}
out=${2:-target/wheels}
tools=$PWD/target/python-tools/bin

rm -rf "$out"
mkdir -p "$out"
options=(--strip --features jemalloc)
if [ "$profile" = dev ]; then
  export CARGO=$PWD/python/cargo-workspace.sh
  options=()
fi
linker=()
target=${WHEEL_TARGET:-$(rustc -vV | sed -n 's/^host: //p')}
# ARM systems have pages of 4, 16 or 64 KiB. The allocator must be built for the largest.
case $target in aarch64-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac
if [ -n "${ZIG:-}" ]; then
  "$tools/pip" install --quiet --disable-pip-version-check 'ziglang==0.17.*'
  linker=(--zig --target "$target" --compatibility manylinux2014)
  if [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
    printf "tidegate: installing Rust's standard library for %s\n" "$target"
    rustup target add "$target"
  fi
fi
PATH=$tools:$PATH "$tools/maturin" build --quiet --locked --profile "$profile" "${options[@]}" "${linker[@]}" --out "$out"
"$tools/maturin" sdist --out "$out"
"$tools/python" -m build --no-isolation --outdir "$out" python/scrapy-tidegate >/dev/null
ls -1 "$out"
