#!/usr/bin/env bash
# Builds a package of the program: build.sh deb|tarball|static PROFILE. The results are in target/packages.
#
# `deb` has the program, the service with its own user, the rule file, completions and the man pages; DEB_VERSION
# overrides the package's version. `tarball` is what `cargo binstall` fetches from a release. `static` is the same with
# a program that needs no C library (musl): install-tools.sh --static gets what it needs.
set -euo pipefail
cd "$(dirname "$0")/../.."

kind=${1:?usage: build.sh deb|tarball|static PROFILE}
profile=${2:?usage: build.sh deb|tarball|static PROFILE}
out=target/packages
mkdir -p "$out"

# A development build is the one of `make build`; see python/cargo-workspace.sh.
what=(--package tidegate --features jemalloc)
folder=$profile
compression=()
if [ "$profile" = dev ]; then
  what=(--workspace)
  folder=debug
  compression=(--fast)
fi
triple=$(rustc -vV | sed -n 's/^host: //p')
place=$folder
if [ "$kind" = static ]; then
  triple=${triple%%-*}-unknown-linux-musl
  place=$triple/$folder
  what=(--package tidegate --features jemalloc --target "$triple")
  # The allocator, zstd and the cryptography are C.
  export "CC_${triple//-/_}=musl-gcc"
fi
# ARM systems have pages of 4, 16 or 64 KiB. The allocator must be built for the largest.
case $triple in aarch64-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac
cargo build --quiet --locked --profile "$profile" "${what[@]}" --bin tidegate
binary=target/$place/tidegate

deb() {
  local assets=target/deb-assets
  rm -rf "$assets"
  mkdir -p "$assets"
  "$binary" man --dir "$assets/man"
  for shell in bash zsh fish; do "$binary" completions "$shell" >"$assets/tidegate.$shell"; done
  # The service of docker/systemd, with the package's paths and a user that stays.
  {
    printf '# Settings of your own: systemctl edit tidegate\n'
    printf '# Secrets (${PROXY_PASSWORD} and the like): /etc/tidegate/env, mode 600\n\n'
    sed -n '/^\[Unit\]/,$p' docker/systemd/tidegate.service |
      sed -e 's|/usr/local/bin/|/usr/bin/|; s|/etc/tidegate/tidegate.yaml|/etc/tidegate/rules.yaml|' \
        -e '/^# A user that exists only/d; s|^DynamicUser=yes|User=tidegate|'
  } >"$assets/tidegate.service"
  target/packaging-tools/bin/cargo-deb --quiet --no-build "${compression[@]}" --profile "$profile" --output "$out" \
    ${DEB_VERSION:+--deb-version "$DEB_VERSION"}
}

tarball() {
  local version name
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
  name=tidegate-$version-$triple
  rm -rf "target/$name"
  mkdir -p "target/$name"
  cp "$binary" config/tidegate.yaml README.md LICENSE-MIT LICENSE-APACHE CHANGELOG.md "target/$name/"
  tar -C target --owner 0 --group 0 -czf "$out/$name.tar.gz" "$name"
  rm -rf "target/$name"
  printf '%s\n' "$out/$name.tar.gz"
}

static() {
  if readelf --program-headers "$binary" | grep -q INTERP; then
    printf 'tidegate: %s needs a loader: it is not static\n' "$binary" >&2
    exit 1
  fi
  tarball
}

"$kind"
