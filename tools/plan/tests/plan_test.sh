#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tutti-plan prints, proves, draws, and refuses. Needs the algorithms plugin beside the library, else it is skipped.
plan=$1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0

# expect STATUS WORDS ARGUMENTS...: runs tutti-plan; its status and a line of its output must be as said.
expect() {
  status=$1 words=$2
  shift 2
  "$plan" "$@" >"$dir/output" 2>&1
  got=$?
  if [ "$got" -ne "$status" ] || ! grep -q -e "$words" "$dir/output"; then
    echo "tutti-plan $*: expected status $status and \"$words\", got status $got and:"
    cat "$dir/output"
    failures=$((failures + 1))
  fi
}

expect 2 "unknown collective \"all-reduce\".*all_reduce" print all-reduce ring -n 4
expect 2 "no_such_algorithm" verify all_reduce no_such_algorithm -n 4
expect 2 "ROOT\|root" verify broadcast tree -n 4 --root 4
expect 2 "rank" print all_reduce ring -n 4 --rank 4
expect 2 "unknown\|not expected\|subcommand" frobnicate
expect 2 "." print all_reduce ring -n zero
"$plan" print all_reduce ring -n 4 >/dev/null 2>&1 || { echo "the algorithms plugin is not there"; exit 77; }

expect 0 "rank 2" print all_reduce ring -n 4
expect 0 "recv_reduce from 0" print all_reduce ring -n 4 --rank 1
expect 0 "No deadlock" verify all_reduce ring -n 4
expect 0 "the known lower bound" verify all_reduce ring -n 4 --in-place
expect 0 "root 2" verify broadcast tree -n 5 --root 2
expect 0 "drawn" draw all_reduce ring -n 4 -o "$dir/ring.svg"
grep -q '</svg>' "$dir/ring.svg" || { echo "draw wrote no SVG"; failures=$((failures + 1)); }
expect 2 "cannot write" draw all_reduce ring -n 4 -o "$dir/no/such/folder.svg"
[ "$failures" -eq 0 ]
