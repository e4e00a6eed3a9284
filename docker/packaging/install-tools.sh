#!/usr/bin/env bash
# Installs cargo-deb into target/packaging-tools, and what its test needs, and says so. With --static: what a static
# program needs, which is a C compiler for musl and Rust's standard library for it (from rustup).
set -euo pipefail
cd "$(dirname "$0")/../.."

version=3.8.0
tools=target/packaging-tools

install() { # PACKAGE
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
  printf 'tidegate: installing with apt-get: %s\n' "$1"
  "${as_root[@]}" apt-get -qq update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$1" >/dev/null
}

if [ "${1:-}" = --static ]; then
  triple=$(uname -m)-unknown-linux-musl
  if ! command -v musl-gcc >/dev/null 2>&1; then install musl-tools; fi
  if [ ! -d "$(rustc --print target-libdir --target "$triple")" ]; then
    printf "tidegate: installing Rust's standard library for %s\n" "$triple"
    if ! timeout 300 rustup target add "$triple"; then
      printf 'tidegate: rustup cannot download the target %s, which a static program needs\n' "$triple" >&2
      exit 1
    fi
  fi
  exit
fi

if ! command -v ip >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
  install iproute2
fi

if [ ! -x "$tools/bin/cargo-deb" ]; then
  printf 'tidegate: installing cargo-deb %s into %s\n' "$version" "$tools"
  cargo install --quiet --locked --root "$tools" "cargo-deb@$version"
fi
