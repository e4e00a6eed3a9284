#!/bin/sh
# Replaces mitmdump in Scrapy's tests: reads its options and starts Tidegate.
set -eu
while [ $# -gt 0 ]; do
  case $1 in
    --listen-port) port=$2 ;;
    --proxyauth) user=${2%%:*} password=${2#*:} ;;
    --mode) exit 64 ;;
  esac
  shift
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/tidegate.yaml" <<FILE
listen: 127.0.0.1:$port
admin: off
ca_dir: $folder/ca
auth: {users: {$user: $password}}
egress: {allow: [loopback]}
rules:
  - {name: default, match: "*", intercept: true, verify: false}
FILE
"$TIDEGATE" --config "$folder/tidegate.yaml"
