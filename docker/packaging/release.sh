#!/usr/bin/env bash
# The steps of a release that are neither a build nor an upload:
#
#   release.sh version [TAG]   the versions of all packages, the changelog and the tag agree; prints the version
#   release.sh files FOLDER    sorts a folder of built packages into pypi/ and github/, with checksums and notes.md
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() {
  printf 'tidegate: %s\n' "$*" >&2
  exit 1
}

field() { # FILE
  sed -n 's/^version = "\(.*\)"/\1/p' "$1" | head -n 1
}

version() { # [TAG]
  local version addon
  version=$(field Cargo.toml)
  addon=$(field python/scrapy-tidegate/pyproject.toml)
  [ "$addon" = "$version" ] || fail "scrapy-tidegate has version $addon, the program $version"
  if [ -n "${1:-}" ]; then
    [ "$1" = "v$version" ] || fail "the tag is $1, the version $version"
    grep -q "^## $version" CHANGELOG.md || fail "CHANGELOG.md has no section '## $version'"
  fi
  printf '%s\n' "$version"
}

files() { # FOLDER
  local folder=$1 version
  version=$(version)
  rm -rf "$folder/pypi" "$folder/github"
  mkdir -p "$folder/pypi" "$folder/github"
  find "$folder" -name '*.whl' -exec cp {} "$folder/pypi/" \;
  find "$folder" -path "$folder/pypi" -prune -o -name "*tidegate-$version.tar.gz" -exec cp {} "$folder/pypi/" \;
  find "$folder" -path "$folder/github" -prune -o -name '*.deb' -exec cp {} "$folder/github/" \;
  find "$folder" -path "$folder/github" -prune -o -name "tidegate-$version-*.tar.gz" -exec cp {} "$folder/github/" \;
  for kind in pypi/*.whl pypi/tidegate-*.tar.gz github/*.deb github/*.tar.gz; do
    compgen -G "$folder/$kind" >/dev/null || fail "$folder has no $kind"
  done
  (cd "$folder/github" && sha256sum -- * >SHA256SUMS)
  # The changelog's section of this version; before the first release, what is to come.
  awk -v version="$version" '
    /^## / { inside = index($0, "## " version) == 1 || (!found && $0 == "## Unreleased"); if (inside) { found = 1; next } }
    inside' CHANGELOG.md >"$folder/notes.md"
  [ -s "$folder/notes.md" ] || fail "CHANGELOG.md says nothing of $version"
  (cd "$folder" && ls -1 pypi github notes.md)
}

case ${1:-} in
  version | files) "$@" ;;
  *) fail "usage: release.sh version [TAG] | files FOLDER" ;;
esac
