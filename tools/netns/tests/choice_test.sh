#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: choice_test.sh BIN_FOLDER      Four ranks on two pretended hosts choose by what leaves a host.
set -euo pipefail
bin=$1
if [[ $(id -u) != 0 ]] || ! ip netns list >/dev/null 2>&1; then
  echo "skipped: network namespaces need root and iproute2"
  exit 77
fi
failures=0
# expect ALGORITHM COLLECTIVE BYTES HOSTS: an extended regular expression
expect() {
  local chosen
  chosen=$("$bin/tuttirun" -n 4 --hosts-as-netns "$4" --no-label --timeout 100 "$bin/tutti-info" --explain "$2" "$3")
  grep -qE "^ *$1 .*chosen: the lowest predicted time" <<<"$chosen" && return
  echo "$2 of $3 bytes by 4 ranks on $4 host(s): expected $1 to be chosen, got:"
  echo "$chosen"
  failures=$((failures + 1))
}
expect "(leaders|doubling)" all_reduce 8 2  # by the number of cores
expect "(hierarchical|canonical_halving)" all_reduce 4M 2  # on two even hosts they are the same
expect hierarchical all_gather 4M 2
expect hierarchical reduce_scatter 4M 2
[ "$failures" -eq 0 ]
