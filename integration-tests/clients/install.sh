#!/usr/bin/env bash
# Installs the programs that the tests need, and lists them. Works on Debian-like systems as root (or with sudo);
# elsewhere it lists the missing programs and exits with 1.
#
#   install.sh          for `make test`: Redis, curl, valgrind and the Python clients
#   install.sh --all    for `make test-clients`: also wget, Node, Go, Java and Chromium with their libraries
#   install.sh --peers  for `make test-peers`: also nginx, Apache, testssl.sh and socat, which the tests start themselves
#
# Libraries go below target/ (a virtual environment, a node_modules, a built Go program), never into the system.
set -euo pipefail
cd "$(dirname "$0")/../.."

clients=integration-tests/clients
venv=target/clients-venv
wanted=$clients/requirements.txt
node=target/clients-node
go=target/clients-go
all=${1:-}
case $all in
  "" | --all | --peers) ;;
  *)
    printf 'usage: %s [--all | --peers]\n' "$0" >&2
    exit 2
    ;;
esac

say() { printf 'tidegate: %s\n' "$*"; }

missing=()
need() { # COMMAND PACKAGE
  command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}
need cc gcc
need make make
need redis-server redis-server
need curl curl
need script bsdutils
need faketime faketime
need python3 python3
need valgrind valgrind
if ! python3 -c 'import ensurepip, venv' >/dev/null 2>&1; then missing+=(python3-venv); fi
if [ "$all" = --peers ]; then
  # Not in every user's path.
  PATH=$PATH:/usr/sbin
  need nginx nginx-light
  need apache2 apache2-bin
  # For the suites in integration-tests/suites.
  need apxs apache2-dev
  need testssl testssl.sh
  need socat socat
  need openssl openssl
fi
if [ "$all" = --all ]; then
  need wget wget
  need node nodejs
  need npm npm
  need go golang-go
  need javac default-jdk-headless
  need chromium chromium
  need certutil libnss3-tools
fi

if ((${#missing[@]})); then
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
  if ! command -v apt-get >/dev/null 2>&1 || { ((${#as_root[@]})) && ! command -v sudo >/dev/null 2>&1; }; then
    say "the tests need these packages (names as on Debian), and they cannot be installed here: ${missing[*]}" >&2
    say "install them by hand, then run \`make test\` again" >&2
    exit 1
  fi
  say "installing with apt-get: ${missing[*]}"
  "${as_root[@]}" apt-get -qq update
  # The package would start a server of its own on 6379; the tests start private ones.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

if ! cmp -s "$wanted" "$venv/installed.txt"; then
  say "installing the Python clients into $venv: $(grep -v '^#' "$wanted" | tr '\n' ' ')"
  mkdir -p target
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$venv/installed.txt"
fi

if [ "$all" = --all ] && ! cmp -s "$clients/package.json" "$node/installed.json"; then
  say "installing the Node clients into $node: $(sed -n 's/^    "\(.*\)": "\(.*\)".*/\1 \2/p' "$clients/package.json" | tr '\n' ' ')"
  mkdir -p "$node"
  cp "$clients/package.json" "$node/package.json"
  npm install --prefix "$node" --no-audit --no-fund --loglevel error
  cp "$clients/package.json" "$node/installed.json"
fi

if [ "$all" = --all ] && ! cmp -s "$clients/crawl.go" "$go/crawl.go"; then
  say "building the Go client into $go"
  mkdir -p "$go"
  go build -o "$go/crawl" "$clients/crawl.go"
  cp "$clients/crawl.go" "$go/crawl.go"
fi
