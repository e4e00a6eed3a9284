#!/usr/bin/env bash
# Installs what builds and checks the Python packages into target/python-tools, and says so.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=python/requirements-tools.txt
venv=target/python-tools
if ! cmp -s "$wanted" "$venv/installed.txt"; then
  printf 'tidegate: installing the Python tools into %s\n' "$venv"
  mkdir -p target
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$venv/installed.txt"
fi
