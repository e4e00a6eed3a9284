#!/usr/bin/env bash
# Installs the packages that build.sh has built into a fresh virtual environment per Python, and runs their tests there.
#
#   test.sh [FOLDER]     the folder with the packages, by default target/python-test
#
# PYTHONS names the interpreters; by default the newest one that is installed, and Python 3.9, the oldest supported one.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=${1:-target/python-test}
# A Python that can make virtual environments, of the first of these minor versions that there is.
installed() { # MINOR...
  local minor candidate
  for minor in "$@"; do
    for candidate in "$HOME"/.pyenv/versions/3."$minor".*/bin/python3."$minor" "$(command -v "python3.$minor")"; do
      if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
        printf '%s\n' "$candidate"
        return
      fi
    done
  done
}

if [ -z "${PYTHONS:-}" ]; then
  oldest=$(installed 9)
  newest=$(installed $(seq 30 -1 10))
  if [ -z "$oldest" ]; then printf 'tidegate: no Python 3.9 here, so only a newer one is tested\n'; fi
  PYTHONS="${newest:-python3} $oldest"
fi

test_with() { # PYTHON
  local version venv
  version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  venv=target/python-test-$version
  printf '\ntidegate: Python %s\n' "$version"
  "$1" -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --find-links "$packages" \
    -r python/requirements-test.txt tidegate scrapy-tidegate
  "$venv/bin/python" -m pytest --quiet --timeout 120 -c python/tests/pytest.ini python/tests
}

# The build of the source distribution starts: it has all files, and versions for its part of the workspace.
sources=$(mktemp -d)
tar -xzf "$packages"/tidegate-*.tar.gz -C "$sources" --strip-components 1
(cd "$sources" && "$OLDPWD/target/python-tools/bin/maturin" pep517 write-dist-info --metadata-directory dist-info >/dev/null)
grep -q '^Name: tidegate' "$sources"/dist-info/*/METADATA
rm -rf "$sources"

# `uvx tidegate`, with the wheel instead of PyPI.
target/python-tools/bin/uv tool run --quiet --no-cache --from "$(ls "$packages"/tidegate-*.whl)" tidegate --version |
  grep -q '^tidegate '

# The installed program is tested, not one that the environment names.
unset TIDEGATE_BIN PYTHONPATH
# The first commands of docs/getting-started.md install from here.
TIDEGATE_WHEELS=$(realpath "$packages")
export TIDEGATE_WHEELS
# At the same time: the tests wait more than they work.
logs=$(mktemp -d)
runs=()
for python in $PYTHONS; do
  test_with "$python" >"$logs/${#runs[@]}" 2>&1 &
  runs+=($!)
done
failed=0
for run in "${!runs[@]}"; do
  wait "${runs[$run]}" || failed=1
  cat "$logs/$run"
done
rm -rf "$logs"
exit "$failed"
