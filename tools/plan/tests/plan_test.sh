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
expect 2 "-n \"zero\": expected how many ranks" print all_reduce ring -n zero
expect 2 "-n \"0\": expected how many ranks" print all_reduce ring -n 0
expect 2 "-n \"65537\": expected how many ranks" print all_reduce ring -n 65537
expect 2 "-n \"5..4\": expected how many ranks" verify all_reduce ring -n 5..4
for hosts in 4,,4 4,x 0,4 4, ,4 -1,2 65537; do
  expect 2 "expected the number of ranks of each host" print all_reduce ring "--hosts=$hosts"
done
expect 2 "65537 ranks; at most 65536" print all_reduce ring --hosts 65536,1
expect 2 "contradict each other: leave -n out" print all_reduce ring --hosts 4,4 -n 4
expect 2 "expected consecutive or cyclic" print all_reduce ring --hosts 4,4 --placement random
expect 2 "say which by --hosts" print all_reduce ring --placement cyclic
expect 2 "are for verify" print all ring
expect 2 "are for verify" draw all_reduce ring -n 1..4
expect 2 "unknown collective" verify al all
"$plan" print all_reduce ring -n 4 >/dev/null 2>&1 || { echo "the algorithms plugin is not there"; exit 77; }

expect 0 "rank 2" print all_reduce ring -n 4
expect 0 "recv_reduce from 0" print all_reduce ring -n 4 --rank 1
expect 0 "No deadlock" verify all_reduce ring -n 4
expect 0 "the known lower bound" verify all_reduce ring -n 4 --in-place
expect 0 "root 2" verify broadcast tree -n 5 --root 2
expect 0 "drawn" draw all_reduce ring -n 4 -o "$dir/ring.svg"
for words in '>round 6<' '>1/4<' 'completes a result' 'recv_reduce, reduce'; do
  grep -q -e "$words" "$dir/ring.svg" || { echo "the drawing of a ring lacks $words"; failures=$((failures + 1)); }
done
! grep -q -e '>signal, wait<' -e '>dependency<' "$dir/ring.svg" || { echo "the legend has what does not occur"; failures=$((failures + 1)); }

# count NUMBER WORDS FILE: so many lines of a file have the words.
count() {
  got=$(grep -c -e "$2" "$3")
  [ "$got" -eq "$1" ] || { echo "$3: expected $1 lines with $2, got $got"; failures=$((failures + 1)); }
}
# A chunk of a ring goes through all ranks, and its sum through all but the last again: 14 messages of 112.
expect 0 "drawn" draw all_reduce ring -n 8 --follow 3 -o "$dir/ring8.svg"
count 14 'class="message way" marker' "$dir/ring8.svg"
count 98 'class="message\( add\)\? off" marker' "$dir/ring8.svg"
count 14 '>round [0-9]*<.*>1/8<' "$dir/ring8.svg"
# One rank's block of an all_gather goes to each other rank.
expect 0 "drawn" draw all_gather ring -n 6 --view rounds --follow 0@2 -o "$dir/gather.svg"
count 5 'class="message way" marker' "$dir/gather.svg"
expect 0 "drawn" draw all_gather ring -n 6 --view rounds --follow 0@2 --in-place -o "$dir/gather.svg"
count 5 'class="message way" marker' "$dir/gather.svg"
expect 0 "drawn" draw all_reduce ring -n 4 --follow 0 --view steps -o "$dir/steps.svg"
count 6 'class="message way" marker' "$dir/steps.svg"
# Two messages of one round between two ranks, since blocks wrap around.
expect 0 "drawn" draw all_reduce halving -n 8 --view rounds -o "$dir/halving.svg"
grep -q '1/8 + 3/8\|3/8 + 1/8' "$dir/halving.svg" || { echo "halving's two messages are not told apart"; failures=$((failures + 1)); }
# Many ranks: a page, not a wall.
expect 0 "drawn" draw all_reduce ring -n 64 -o "$dir/ring64.svg"
grep -q '102 more rounds' "$dir/ring64.svg" && [ "$(wc -c <"$dir/ring64.svg")" -lt 200000 ] ||
  { echo "64 ranks are not drawn on a page"; failures=$((failures + 1)); }
expect 0 "drawn" draw all_to_all direct -n 64 -o "$dir/direct64.svg"
[ "$(wc -c <"$dir/direct64.svg")" -lt 30000 ] || { echo "a full matrix is too large"; failures=$((failures + 1)); }
expect 2 "expected auto, steps, rounds or matrix" draw all_reduce ring -n 4 --view circle
expect 2 "expected CHUNK or CHUNK@RANK" draw all_reduce ring -n 4 --follow first
expect 2 "there is no chunk 4 to be followed: IN of rank 0 has 4" draw all_reduce ring -n 4 --follow 4
expect 2 "there is no chunk 0 to be followed at rank 1: IN of rank 1 has 0" draw broadcast tree -n 4 --follow 0@1
grep -q '</svg>' "$dir/ring.svg" || { echo "draw wrote no SVG"; failures=$((failures + 1)); }
expect 0 "rank 1, host 1" print all_reduce ring --hosts 2,2 --placement cyclic
expect 0 "rank 1, host 0" print all_reduce ring --hosts 2,2
expect 0 "ring all_reduce on 4 ranks of 2 hosts" verify all_reduce ring --hosts 2,2
expect 0 "12 messages between hosts; the busiest host sends 1.5 blocks to others" verify all_reduce ring --hosts 2,2
expect 0 "24 messages between hosts" verify all_reduce ring --hosts 2,2 --placement cyclic
expect 0 "of 3 hosts is proved" verify all_reduce hierarchical --hosts 2,3,5 --placement cyclic
sed 's/"numa": 1/"numa": 0/' "$(dirname "$0")/../../info/topologies/islands.json" >"$dir/one_node.json"
expect 0 "three_level all_reduce on 9 ranks of 2 hosts is proved" verify all_reduce three_level --hosts 2+3,1+1+2 --placement cyclic
expect 2 "the NUMA nodes of the ranks are not known" verify all_reduce three_level --hosts 4,4
expect 2 "no host has ranks on several NUMA nodes" verify all_reduce three_level --topology "$dir/one_node.json"
expect 2 '"2+": expected .* NUMA nodes, such as 2+2,2+2; "" is none' print all_reduce ring --hosts 2+
expect 0 "hosts is proved" verify all_reduce leaders -n 9 --hosts random:1
expect 2 "expected a number as the seed" print all_reduce ring -n 9 --hosts random:x
expect 2 "give neither --placement nor a range" print all_reduce ring -n 9 --hosts random:1 --placement cyclic
expect 0 "drawn" draw all_reduce ring --hosts 1,3 -o "$dir/hosts.svg"
grep -q '>host 1<' "$dir/hosts.svg" || { echo "draw shows no hosts"; failures=$((failures + 1)); }
expect 0 "bruck:4 all_to_all on 5 ranks is proved" verify all_to_all bruck:4 -n 5
expect 0 "^total: .* problems proved, 12 refused" verify all_reduce all -n 1..9  # swing: even numbers of ranks; three_level: NUMA nodes
expect 0 "contributions of ranks 0 to the rank itself exactly once and in the order" verify scan hillis_steele -n 5
expect 0 "of ranks 0 to the one before the rank exactly once" verify exclusive_scan chain -n 5
for collective in reduce all_reduce reduce_scatter scan exclusive_scan; do
  for algorithm in canonical_doubling canonical_halving; do
    case $collective-$algorithm in
    reduce_scatter-canonical_doubling | *scan-canonical_halving) ;;
    *) expect 0 "serves TUTTI_ORDER=canonical" verify $collective $algorithm -n 6 ;;
    esac
  done
done
for request in "all_reduce ring" "scan chain"; do
  "$plan" verify $request -n 6 | grep -q TUTTI_ORDER && { echo "$request is said to have the canonical order"; failures=$((failures + 1)); }
done
for collective in reduce all_reduce reduce_scatter reduce_scatter_v scan exclusive_scan; do
  expect 0 "in one step (flat): it serves exact sums" verify $collective flat -n 6
done
expect 0 "in one step (flat)" verify all_reduce direct -n 6
"$plan" verify all_reduce canonical_direct -n 6 | grep -q "(flat)" && { echo "canonical_direct is said to be flat"; failures=$((failures + 1)); }
expect 0 "^exclusive_scan  *exclusive_doubling  *9 " verify exscan all -n 1..9
expect 0 "^barrier  *tree " verify all all --hosts 2,3
expect 0 "^ring  *around a ring" algorithms
expect 0 "^| \`pat\` | 4 | 64 | 15 | 15 |" algorithms --markdown
expect 2 "not expected" algorithms all_reduce
expect 0 "pat:2 all_gather on 9 ranks is proved" verify all_gather pat:2 -n 9
expect 2 "needs an even number of ranks, there are 9" verify all_gather neighbour -n 9
expect 0 "6 messages between hosts" verify all_to_all hierarchical --hosts 2,3,5 --placement cyclic
expect 2 "cannot write" draw all_reduce ring -n 4 -o "$dir/no/such/folder.svg"
[ "$failures" -eq 0 ]
