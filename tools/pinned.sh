# Sourced by the bring scripts. `bring_pinned HERE [--pin] TARGET` calls the script's own `fetch DIRECTORY` and checks the
# jars it brought against HERE/jars.sha256, both ways: no jar changed, none missing, none more. The target appears only when
# all is well, so a broken download leaves nothing behind. With --pin it writes jars.sha256 instead of checking against it.
# shellcheck shell=bash

need() {
  local cure=$1 tool
  shift
  for tool in "$@"; do
    command -v "$tool" >/dev/null || { echo "setup: $tool not found; $cure" >&2; exit 1; }
  done
}

sums() { (export LC_ALL=C && shopt -s nullglob && cd "$1" && for jar in *.jar; do sha256sum "$jar"; done); }

bring_pinned() {
  local here=$1 pin=false target pinned difference
  shift
  if [[ "${1:-}" == --pin ]]; then
    pin=true
    shift
  fi
  target=${1:?usage: bring [--pin] DIRECTORY}
  pinned=$here/jars.sha256

  need "Maven, a JDK (17 or later) and coreutils are needed" mvn java javac sha256sum
  if ! $pin && [[ -d $target ]] && diff -q <(sums "$target") "$pinned" >/dev/null; then
    return
  fi

  mkdir -p "$(dirname "$target")"
  fresh=$(mktemp -d "$target.XXXXXX")  # not local: the trap needs it
  trap 'rm -rf "$fresh"' EXIT
  fetch "$(cd "$fresh" && pwd)"

  if $pin; then
    sums "$fresh" >"$pinned"
  elif ! difference=$(diff <(sums "$fresh") "$pinned"); then
    echo "setup: the jars are not the pinned ones (< found, > pinned in tools/$(basename "$here")/jars.sha256):" >&2
    echo "$difference" >&2
    exit 1
  fi
  rm -rf "$target"
  mv "$fresh" "$target"
}
