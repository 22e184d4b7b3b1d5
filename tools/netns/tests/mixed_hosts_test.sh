#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: mixed_hosts_test.sh BIN_FOLDER MIXED_HOSTS      Two and three pretend hosts, shm inside and tcp between; then tcp alone.
set -euo pipefail
bin=$1 program=$2
if [[ $(id -u) != 0 ]] || ! ip netns list >/dev/null 2>&1; then
  echo "skipped: network namespaces need root and iproute2"
  exit 77
fi
"$bin/tuttirun" -n 4 --hosts-as-netns 2 --timeout 100 "$program"
"$bin/tuttirun" -n 6 --hosts-as-netns 3 --timeout 100 "$program"
"$bin/tuttirun" -n 4 --hosts-as-netns 2 --timeout 100 --env TUTTI_TRANSPORT=tcp "$program"
# shm alone cannot reach another host: it must be refused, by name, on every rank.
if "$bin/tuttirun" -n 2 --hosts-as-netns 2 --timeout 100 --env TUTTI_TRANSPORT=shm "$program" >refused.log 2>&1; then
  echo "TUTTI_TRANSPORT=shm between two hosts was not refused"
  exit 1
fi
grep -q "no transport connects rank 0 (host 0) with rank 1 (host 1); shm reaches only ranks of one host" refused.log || {
  cat refused.log
  exit 1
}
