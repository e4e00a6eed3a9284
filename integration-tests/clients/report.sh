# Sourced by the crawlers that are shell scripts: the crawl, and the report of its results.
# They define a function `get URL` that leaves the page in $page and calls `answered` or `failed`.

statuses=() verdicts=() refusals=() error=null

quoted() { if [ -n "$1" ]; then printf '"%s"' "$1"; else printf null; fi; }
joined() {
  local IFS=,
  printf '[%s]' "$*"
}
answered() { # STATUS VERDICT REFUSED
  statuses+=("$1")
  verdicts+=("$(quoted "$2")")
  refusals+=("$(quoted "$3")")
}
failed() { # WHAT
  error=$(quoted "$1")
}
crawl() { # URL OF THE INDEX
  local index=$1 link
  if get "$index"; then
    for link in $(grep -oE 'href="/item/[0-9]+"' <<<"$page" | cut -d'"' -f2); do
      get "${index%/}$link" || break
    done
  fi
  printf '{"statuses":%s,"verdicts":%s,"refused":%s,"error":%s}\n' \
    "$(joined "${statuses[@]}")" "$(joined "${verdicts[@]}")" "$(joined "${refusals[@]}")" "$error"
}
