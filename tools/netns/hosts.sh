#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Pretend hosts: network namespaces that are joined by a bridge, so that what runs in them talks over TCP as hosts do.
#
#   hosts.sh up PREFIX K     makes PREFIX-0 ... PREFIX-(K-1), each with eth0, and PREFIX-br with the bridge between them
#   hosts.sh down PREFIX     removes whatever of them exists; doing it twice is no error
#   hosts.sh sweep BASE      removes namespaces BASE-PID-... of processes that no longer exist
#   hosts.sh address I       prints the address of host I: 10.77.(I / 250).(I mod 250 + 1), in 10.77.0.0/16
#
# NETNS_RATE=1gbit in the environment: each host sends at most so much (a rate of tc).
# NETNS_LARGEST=1400 in the environment: hosts have MTU 9000, and the network drops larger packets than that in silence.
# Needs root and iproute2. Enter a host with: ip netns exec PREFIX-0 COMMAND
set -eu

die() { echo "hosts.sh: $*" >&2; exit 1; }
address() { echo "10.77.$(($1 / 250)).$(($1 % 250 + 1))"; }
names() { ip netns list | sed 's/ .*//' | grep -E "^$1-([0-9]+|br)\$" || true; }

# The bridge for host I's cable. With NETNS_LARGEST a bridge of its own, joined to the common one by a cable of that MTU:
# a bridge drops what does not fit. (What a host's own cable does not take, the host would see dropped.)
port() {
  [ -n "$largest" ] || { echo br0; return; }
  ip -n "$1" link add "near$2" type bridge
  ip -n "$1" link add "out$2" mtu "$largest" type veth peer name "in$2" mtu "$largest"
  ip -n "$1" link set "out$2" master "near$2" up
  ip -n "$1" link set "in$2" master br0 up
  ip -n "$1" link set "near$2" up
  ip -n "$1" link set "host$2" mtu 9000
  echo "near$2"
}

up() {
  prefix=$1 hosts=$2 rate=${NETNS_RATE-} largest=${NETNS_LARGEST-}
  ip netns add "$prefix-br"
  ip -n "$prefix-br" link set lo up
  ip -n "$prefix-br" link add br0 type bridge
  ip -n "$prefix-br" link set br0 up
  i=0
  while [ "$i" -lt "$hosts" ]; do
    ip netns add "$prefix-$i"
    ip -n "$prefix-br" link add "host$i" type veth peer name eth0 netns "$prefix-$i"
    ip -n "$prefix-br" link set "host$i" master "$(port "$prefix-br" "$i")" up
    ip -n "$prefix-$i" link set lo up
    ip -n "$prefix-$i" address add "$(address "$i")/16" dev eth0
    ip -n "$prefix-$i" link set eth0 up
    # Segments are cut before they leave, as they are on a wire: the bridge passes larger ones uncut.
    [ -z "$largest" ] || ip -n "$prefix-$i" link set eth0 mtu 9000 gso_max_segs 1
    # What a host sends, and so what its peers receive of it, at most at this rate.
    [ -z "$rate" ] || tc -n "$prefix-$i" qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 100ms
    i=$((i + 1))
  done
}

down() {
  for name in $(names "$1"); do ip netns delete "$name" 2>/dev/null || true; done
  left=$(names "$1")
  [ -z "$left" ] || die "cannot remove $left"
}

sweep() {
  for prefix in $(ip netns list | sed -nE "s/^($1-[0-9]+)-([0-9]+|br)( .*)?\$/\1/p" | sort -u); do
    [ -e "/proc/${prefix##*-}" ] || down "$prefix"
  done
}

commands() { sed -n '6,9s/^# *hosts.sh/ /p' "$0"; }
usage() { commands >&2; exit 2; }
plain() { case $1 in '' | *[!A-Za-z0-9-]*) die "\"$1\" is no prefix: letters, digits and - are allowed" ;; esac; }
number() { case $1 in '' | *[!0-9]* | ???????*) die "\"$1\" is no number" ;; esac; }

case ${1-} in
  up)
    [ $# -eq 3 ] || usage
    plain "$2"
    number "$3"
    { [ "$3" -ge 1 ] && [ "$3" -le 1000 ]; } || die "$3 hosts were asked for; 1 to 1000 are possible"
    case ${NETNS_RATE-} in '' | [1-9]*bit) ;; *) die "NETNS_RATE is \"$NETNS_RATE\", expected a rate of tc: 1gbit, 500mbit" ;; esac
    case ${NETNS_LARGEST-} in '' | [1-8][0-9][0-9][0-9]) ;; *) die "NETNS_LARGEST is \"$NETNS_LARGEST\", expected bytes, 1000 to 8999" ;; esac
    [ "$(id -u)" = 0 ] || die "making network namespaces needs root"
    command -v ip >/dev/null || die "the command ip (iproute2) is not installed"
    trap 'status=$?; [ $status -eq 0 ] || down "$prefix"' EXIT
    up "$2" "$3"
    ;;
  down)
    [ $# -eq 2 ] || usage
    plain "$2"
    down "$2"
    ;;
  sweep)
    [ $# -eq 2 ] || usage
    plain "$2"
    sweep "$2"
    ;;
  address)
    [ $# -eq 2 ] || usage
    number "$2"
    address "$2"
    ;;
  -h | --help)
    sed -n '4s/^# //p' "$0"
    printf 'Usage: %s COMMAND [ARGUMENT...]\n\nCommands:\n' "${0##*/}"
    commands
    printf '\n'
    sed -n '11,13s/^# //p' "$0"
    ;;
  *) usage ;;
esac
