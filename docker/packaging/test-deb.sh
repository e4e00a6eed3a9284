#!/usr/bin/env bash
# Installs, starts, upgrades, removes and purges the Debian package, and takes the program out of it and of the archive
# as the Dockerfile does. Everything happens in a copy-on-write view of this
# machine's root, with its own network: nothing of the machine changes. It needs root and mount namespaces; without
# them only the contents are checked.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() {
  printf 'tidegate: %s\n' "$*" >&2
  exit 1
}

contents() { # DEB
  local wanted listing
  listing=$(dpkg-deb --contents "$1")
  for wanted in /usr/bin/tidegate /etc/tidegate/rules.yaml /usr/lib/systemd/system/tidegate.service \
    /usr/share/man/man1/tidegate.1.gz /usr/share/man/man1/tidegate-check.1.gz \
    /usr/share/man/man1/tidegate-cooldown-clear.1.gz /usr/share/bash-completion/completions/tidegate \
    /usr/share/zsh/vendor-completions/_tidegate /usr/share/fish/vendor_completions.d/tidegate.fish \
    /usr/share/doc/tidegate/copyright; do
    grep -q "\.$wanted$" <<<"$listing" || fail "$1 has no $wanted"
  done
  dpkg-deb --ctrl-tarfile "$1" | tar -xO ./conffiles | grep -qx /etc/tidegate/rules.yaml ||
    fail "the rule file is no conffile"
}

# `cargo binstall` finds the archive and the program in it by the manifest.
binstall() { # ARCHIVE
  local version triple
  version=$(docker/packaging/release.sh version)
  triple=$(rustc -vV | sed -n 's/^host: //p')
  expand() { # KEY
    sed -n "s/^$1 = \"\(.*\)\"/\1/p" Cargo.toml |
      sed "s/{ version }/$version/g; s/{ target }/$triple/g; s/{ bin }/tidegate/g"
  }
  [ "$(basename "$(expand pkg-url)")" = "$(basename "$1")" ] || fail "cargo binstall looks for $(expand pkg-url), not $1"
  tar -tzf "$1" | grep -qx "$(expand bin-dir)" || fail "$1 has no $(expand bin-dir)"
}

answers() {
  local tries
  for tries in $(seq 300); do
    if bash -c 'exec 3<>/dev/tcp/127.0.0.1/9128' 2>/dev/null; then return; fi
    sleep 0.1
  done
  fail "the service does not listen after $tries tries"
}

# What systemd would do with the service: check the rule file, run the program as the service's user.
serve_and_stop() { # ROOT
  local unit=$1/usr/lib/systemd/system/tidegate.service user command pid
  user=$(sed -n 's/^User=//p' "$unit")
  command=$(sed -n 's/^ExecStartPre=//p' "$unit")
  # shellcheck disable=SC2086 # a command with its arguments
  chroot "$1" runuser -u "$user" -- $command || fail "the service's check fails"
  command=$(sed -n 's/^ExecStart=//p' "$unit")
  # shellcheck disable=SC2086
  chroot "$1" runuser -u "$user" -- $command >/dev/null 2>&1 &
  pid=$!
  answers
  chroot "$1" tidegate status >/dev/null || fail "\`tidegate status\` does not reach the service"
  # runuser passes SIGTERM on.
  kill "$pid"
  wait "$pid" || true
}

life() { # ROOT OLD NEW
  local root=$1
  ip link set lo up
  chroot "$root" dpkg --install "/packages/$2" >/dev/null || fail "it cannot be installed"
  chroot "$root" getent passwd tidegate >/dev/null || fail "there is no user"
  if command -v systemd-analyze >/dev/null 2>&1; then
    systemd-analyze verify --man=no --root "$root" tidegate.service || fail "systemd does not take the unit"
  fi
  serve_and_stop "$root"
  printf '\n# the operator was here\n' >>"$root/etc/tidegate/rules.yaml"
  chroot "$root" dpkg --install --force-confold "/packages/$3" >/dev/null || fail "it cannot be upgraded"
  grep -q 'the operator was here' "$root/etc/tidegate/rules.yaml" || fail "an upgrade lost the rule file"
  serve_and_stop "$root"
  chroot "$root" dpkg --remove tidegate >/dev/null || fail "it cannot be removed"
  [ ! -e "$root/usr/bin/tidegate" ] || fail "the program is still there"
  [ -e "$root/etc/tidegate/rules.yaml" ] || fail "a removal lost the rule file"
  mkdir -p "$root/var/lib/tidegate"
  chroot "$root" dpkg --purge tidegate >/dev/null || fail "it cannot be purged"
  [ ! -e "$root/etc/tidegate" ] && [ ! -e "$root/var/lib/tidegate" ] || fail "a purge left files"
}

scratch_root() { # OLD NEW
  local place=/dev/shm
  mount -t tmpfs tmpfs "$place"
  mkdir "$place/upper" "$place/work" "$place/root"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$place/root"
  mount -t proc proc "$place/root/proc"
  mount --bind /dev "$place/root/dev"
  mkdir "$place/root/packages"
  cp "$1" "$2" "$place/root/packages/"
  life "$place/root" "$(basename "$1")" "$(basename "$2")"
}

if [ "${1:-}" = --inside ]; then
  scratch_root "$2" "$3"
  exit
fi

rm -rf target/packages
DEB_VERSION=0.0.1-1 docker/packaging/build.sh deb dev
docker/packaging/build.sh deb dev
old=$(ls target/packages/tidegate_0.0.1-1_*.deb)
new=$(ls target/packages/tidegate_*.deb | grep -v 0.0.1-1)
contents "$new"
docker/packaging/build.sh tarball dev >/dev/null
binstall target/packages/tidegate-*.tar.gz
for package in "$new" target/packages/tidegate-*.tar.gz; do
  docker/packaging/unpack.sh "$package" target/packages/unpacked
  target/packages/unpacked --version | grep -q '^tidegate ' || fail "$package holds no program"
  rm target/packages/unpacked
done
isolated=(unshare --mount --net --pid --fork)
if [ "$(id -u)" -eq 0 ] && "${isolated[@]}" mount -t tmpfs tmpfs /dev/shm 2>/dev/null; then
  "${isolated[@]}" "$0" --inside "$old" "$new"
  printf 'tidegate: %s was installed, started, upgraded, removed and purged\n' "$new"
else
  printf 'tidegate: only the contents of %s were checked: installing it needs root and mount namespaces\n' "$new"
fi
