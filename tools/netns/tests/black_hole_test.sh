#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: black_hole_test.sh BIN_FOLDER      Hosts of MTU 9000 joined by a network that drops what is larger than 1400 and
#                                           says nothing: tutti-doctor and the error at a deadline name it.
set -euo pipefail
bin=$1
if [[ $(id -u) != 0 ]] || ! ip netns list >/dev/null 2>&1; then
  echo "skipped: network namespaces need root and iproute2"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# run NAME OPTION... -- COMMAND...: its output is in $folder/NAME, its exit status in $status
run() {
  local name=$1
  shift
  status=0
  NETNS_LARGEST=1400 timeout 300 "$bin/tuttirun" --hosts-as-netns 2 --survive "$@" >"$folder/$name" 2>&1 || status=$?
}
failures=0
expect() { # NAME EXPRESSION...: the output has each
  local name=$1
  shift
  for expression; do
    grep -qE "$expression" "$folder/$name" && continue
    echo "$name: expected \"$expression\", status $status, got:"
    cat "$folder/$name"
    failures=$((failures + 1))
    return
  done
}

# Its report would not pass in one packet.
run doctor -n 4 --env TUTTI_TIMEOUT=600 --env TUTTI_CONNECT_TIMEOUT=60 "$bin/tutti-doctor"
expect doctor "ERROR .*8 bytes arrive, 128 KiB do not within 10 s: rank 0 and rank 2 \(hosts .*; over tcp, eth0 with MTU 9000 and eth0 with MTU 9000\)" \
  "0 of 2 ways carry them" "1 error, .* on 2 hosts, 4 ranks"
((status == 1)) || { echo "tutti-doctor ended with status $status"; failures=$((failures + 1)); }

# The transport gives up before: still the pairs are named, and only these.
run gives_up -n 3 --env TUTTI_TCP_USER_TIMEOUT=5 "$bin/tutti-doctor"
expect gives_up "ERROR .*while hosts sent each other 128 KiB: .* out of reach over tcp: .*Connection timed out; [0-9]+ bytes are not acknowledged" \
  "128 KiB had not arrived: rank 0 and rank 1 \(hosts .*; over tcp, eth0 with MTU 9000 and eth0 with MTU 9000\) \[ranks 0-1 on "
((status == 1)) || { echo "tutti-doctor ended with status $status"; failures=$((failures + 1)); }

# Many calls before: what the ranks tell each other at the deadline would not pass in one packet either.
perf=("$bin/tutti-perf" all_reduce -b 8 -e 1M -f 131072 -n 40)
stuck="rank [01] -> rank [01]: [0-9]+ bytes are not acknowledged: nothing has come back for [0-9.]+ s \([0-9]+ retransmissions in a row\)"
run deadline -n 2 --env TUTTI_TIMEOUT=5 "${perf[@]}"
expect deadline "$stuck\. The network between 10\.77\.0\.[12] and 10\.77\.0\.[12] drops them" "timed out: no progress for 5"
if grep -q "does not answer" "$folder/deadline"; then
  echo "a rank that answers is said not to:"
  cat "$folder/deadline"
  failures=$((failures + 1))
fi

# The kernel gives the connection up first.
run given_up -n 2 --env TUTTI_TCP_USER_TIMEOUT=5 "${perf[@]}"
expect given_up "out of reach over tcp: the connection broke: Connection timed out; [0-9]+ bytes are not acknowledged"
if NETNS_LARGEST=9000 "$bin/tutti-netns-hosts" up "tutti-hole-$$" 1 2>"$folder/wrong"; then
  echo "NETNS_LARGEST=9000 was taken"
  "$bin/tutti-netns-hosts" down "tutti-hole-$$"
  failures=$((failures + 1))
fi
expect wrong 'NETNS_LARGEST is "9000", expected bytes, 1000 to 8999'
((failures == 0))
