#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: vanished_host_test.sh BIN_FOLDER      Cuts a pretend host's cable in the middle of a job: its ranks are named after TUTTI_HOST_TIMEOUT.
set -euo pipefail
bin=$1
if [[ $(id -u) != 0 ]] || ! ip netns list >/dev/null 2>&1; then
  echo "skipped: network namespaces need root and iproute2"
  exit 77
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$bin/tuttirun" -n 3 --hosts-as-netns 2 --timeout 120 --env TUTTI_HOST_TIMEOUT=3 "$bin/tutti-perf" all_reduce -b 64 -e 64 -n 100000000 >"$log" 2>&1 &
job=$!
# It moves bytes once its hosts have sent some.
for _ in $(seq 300); do
  sent=$(ip netns exec "tutti-$job-1" cat /sys/class/net/eth0/statistics/tx_bytes 2>/dev/null || echo 0)
  ((sent > 200000)) && break
  sleep 0.1
done
cut=$(date +%s%N)
ip -n "tutti-$job-br" link set host1 down
status=0
wait "$job" || status=$?
echo "ended with status $status, $((($(date +%s%N) - cut) / 1000000)) ms after the cable was cut"
if ((status == 0 || status == 124)) || ! grep -qE "rank [0-2] is out of reach: the control connection from rank [0-2] to process" "$log"; then
  cat "$log"
  exit 1
fi
grep -m 1 "is out of reach" "$log"
