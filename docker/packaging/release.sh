#!/usr/bin/env bash
# The steps of a release that are no build:
#
#   release.sh version [TAG]         the versions of all packages, the changelog and the tag agree; prints the version
#   release.sh files FOLDER          sorts FOLDER/wheels and FOLDER/packages into FOLDER/pypi and FOLDER/github, with
#                                    checksums and notes.md
#   release.sh publish-pypi FOLDER   uploads pypi/, as a workflow that PyPI trusts or with UV_PUBLISH_TOKEN
#   release.sh publish-page FOLDER TAG   makes the release page of github/ and notes.md, with GH_TOKEN
#   release.sh publish-crate         uploads the crate, with CARGO_REGISTRY_TOKEN
#   release.sh publish-image IMAGE TAG   tags and pushes an image that `make image` has built; with REGISTRY_TOKEN it
#                                    logs in first, as REGISTRY_USER; with DOCKER=podman by podman
#
# DRY_RUN=1 uploads nothing: uv and cargo check what they would upload, the commands of gh and docker are printed.
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
  cp "$folder"/wheels/*"tidegate-$version"* "$folder/pypi/"
  cp "$folder"/packages/tidegate[-_]"$version"-*.{deb,tar.gz} "$folder/github/"
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

dry_run=()
print_only=()
if [ -n "${DRY_RUN:-}" ]; then
  dry_run=(--dry-run)
  print_only=(printf '%s ')
fi

# Runs a command of a program that has no dry run.
upload() {
  "${print_only[@]}" "$@"
  if [ -n "${DRY_RUN:-}" ]; then printf '\n'; fi
}

publish-pypi() { # FOLDER
  target/python-tools/bin/uv publish "${dry_run[@]}" --trusted-publishing automatic "$1"/pypi/*
}

publish-page() { # FOLDER TAG
  version "$2" >/dev/null
  (cd "$1/github" && sha256sum --check --quiet SHA256SUMS)
  upload gh release create "$2" --notes-file "$1/notes.md" "$1"/github/*
}

publish-crate() {
  cargo publish --locked --package tidegate "${dry_run[@]}"
}

publish-image() { # IMAGE TAG
  local docker
  read -ra docker <<<"${DOCKER:-docker}"
  version "$2" >/dev/null
  if [ -n "${REGISTRY_TOKEN:-}" ]; then
    upload "${docker[@]}" login "${1%%/*}" --username "${REGISTRY_USER:?names the user of REGISTRY_TOKEN}" --password-stdin \
      <<<"$REGISTRY_TOKEN"
  fi
  upload "${docker[@]}" tag "$1" "$1:$2"
  upload "${docker[@]}" push "$1:$2"
}

case ${1:-} in
  version | files | publish-pypi | publish-page | publish-crate | publish-image) "$@" ;;
  *) fail "usage: release.sh version [TAG] | files FOLDER | publish-pypi FOLDER | publish-page FOLDER TAG |" \
    "publish-crate | publish-image IMAGE TAG" ;;
esac
