#!/usr/bin/env bash
# Crawls a site with wget: the index page, then every link on it. The proxy comes from http_proxy.
#
# Arguments and output: see README.md in this folder.
set -uo pipefail
. "$(dirname "$0")/report.sh"

options=(--no-verbose --server-response --timeout "${TIMEOUT:-60}" --content-on-error)
if [ "${TIMEOUT:-}" ]; then options+=(--tries 1); fi
if [ "${ADVISED:-}" = 1 ]; then options+=(--retry-on-http-error=429,503 --tries 5); fi
heads=$(mktemp)
trap 'rm -f "$heads"' EXIT

field() { # NAME; from the last head, which is the one that counts
  awk -v name="$1:" '/^  HTTP\// {value = ""} tolower($1) == name {value = $2} END {print value}' "$heads"
}
get() { # URL
  local code=0 status
  page=$(wget "${options[@]}" --output-document - "$1" 2>"$heads") || code=$?
  status=$(awk '/^  HTTP\// {status = $2} END {print status}' "$heads")
  # 8: "server issued an error response", which is a response.
  if [ -z "$status" ] || { [ "$code" -ne 0 ] && [ "$code" -ne 8 ]; }; then
    failed "exit code $code"
    return 1
  fi
  answered "$status" "$(field tidegate-verdict)" "$(field tidegate-refused)"
}

crawl "$1"
