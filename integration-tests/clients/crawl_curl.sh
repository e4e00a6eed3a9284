#!/usr/bin/env bash
# Crawls a site with curl: the index page, then every link on it. The proxy comes from http_proxy.
#
# Arguments and output: see README.md in this folder.
set -uo pipefail
. "$(dirname "$0")/report.sh"

options=(--silent --max-time "${TIMEOUT:-60}")
if [ "${ADVISED:-}" = 1 ]; then options+=(--retry 3); fi

get() { # URL
  local said
  if ! said=$(curl "${options[@]}" --write-out \
    '\n%{http_code}|%header{tidegate-verdict}|%header{tidegate-refused}' "$1"); then
    failed "exit code $?"
    return 1
  fi
  page=${said%$'\n'*}
  IFS='|' read -r status verdict refused <<<"${said##*$'\n'}"
  answered "$status" "$verdict" "$refused"
}

crawl "$1"
