#!/usr/bin/env bash
# Installs cargo-deb into target/packaging-tools, and what its test needs, and says so.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=3.8.0
tools=target/packaging-tools

if ! command -v ip >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
  printf 'tidegate: installing with apt-get: iproute2\n'
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends iproute2 >/dev/null
fi

if [ ! -x "$tools/bin/cargo-deb" ]; then
  printf 'tidegate: installing cargo-deb %s into %s\n' "$version" "$tools"
  cargo install --quiet --locked --root "$tools" "cargo-deb@$version"
fi
