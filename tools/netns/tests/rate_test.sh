#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: rate_test.sh HOSTS_SCRIPT      NETNS_RATE limits what each pretended host sends; a wrong rate is refused.
set -euo pipefail
hosts=$1 prefix=tutti-rate-$$
if [[ $(id -u) != 0 ]] || ! ip netns list >/dev/null 2>&1; then
  echo "skipped: network namespaces need root and iproute2"
  exit 77
fi
trap '"$hosts" down "$prefix"' EXIT
NETNS_RATE=7mbit "$hosts" up "$prefix" 2
for host in 0 1; do
  tc -n "$prefix-$host" qdisc show dev eth0 | grep -q 'tbf .*rate 7Mbit' || {
    echo "host $host is not limited:"
    tc -n "$prefix-$host" qdisc show dev eth0
    exit 1
  }
done
"$hosts" down "$prefix"
if NETNS_RATE=fast "$hosts" up "$prefix" 1 2>"$prefix.log"; then
  echo "NETNS_RATE=fast was taken"
  exit 1
fi
grep -q 'NETNS_RATE is "fast", expected a rate of tc' "$prefix.log"
rm "$prefix.log"
