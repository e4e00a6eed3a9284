#!/usr/bin/env bash
# Extracts the program from a package: unpack.sh PACKAGE FILE. The Dockerfile uses it.
set -euo pipefail

package=${1:?usage: unpack.sh PACKAGE FILE}
file=${2:?usage: unpack.sh PACKAGE FILE}
case $package in
  *.deb) dpkg-deb --fsys-tarfile "$package" | tar -xO ./usr/bin/tidegate >"$file" ;;
  *.tar.gz) tar -xzOf "$package" --wildcards '*/tidegate' >"$file" ;;
  *.whl) unzip -p "$package" 'tidegate-*.data/scripts/tidegate' >"$file" ;;
  *)
    printf 'tidegate: %s is no package of the program: a .deb, .tar.gz or .whl\n' "$package" >&2
    exit 2
    ;;
esac
chmod 755 "$file"
