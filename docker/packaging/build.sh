#!/usr/bin/env bash
# Builds a package of the program: build.sh deb|tarball PROFILE. The results are in target/packages.
#
# `deb` has the program, the service with its own user, the rule file, completions and the man pages; DEB_VERSION
# overrides the package's version. `tarball` is what `cargo binstall` fetches from a release.
set -euo pipefail
cd "$(dirname "$0")/../.."

kind=${1:?usage: build.sh deb|tarball PROFILE}
profile=${2:?usage: build.sh deb|tarball PROFILE}
out=target/packages
mkdir -p "$out"

# A development build is the one of `make build`; see python/cargo-workspace.sh.
what=(--package tidegate)
folder=$profile
compression=()
if [ "$profile" = dev ]; then
  what=(--workspace)
  folder=debug
  compression=(--fast)
fi
cargo build --quiet --locked --profile "$profile" "${what[@]}" --bin tidegate
binary=target/$folder/tidegate

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
  local version host name
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
  host=$(rustc -vV | sed -n 's/^host: //p')
  name=tidegate-$version-$host
  rm -rf "target/$name"
  mkdir -p "target/$name"
  cp "$binary" config/tidegate.yaml README.md LICENSE-MIT LICENSE-APACHE CHANGELOG.md "target/$name/"
  tar -C target --owner 0 --group 0 -czf "$out/$name.tar.gz" "$name"
  rm -rf "target/$name"
  printf '%s\n' "$out/$name.tar.gz"
}

"$kind"
