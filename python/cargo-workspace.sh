#!/usr/bin/env bash
# Cargo for maturin when it packs a development build: builds the program with the whole workspace, as `make build`
# does. On its own the program has fewer features of its dependencies, and cargo would compile all of them again.
set -euo pipefail

arguments=()
for argument in "$@"; do
  case $argument in
    rustc) arguments+=(build --workspace) ;;
    --) break ;;
    *) arguments+=("$argument") ;;
  esac
done
exec cargo "${arguments[@]}"
