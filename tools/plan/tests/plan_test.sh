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
grep -q '</svg>' "$dir/ring.svg" || { echo "draw wrote no SVG"; failures=$((failures + 1)); }
expect 0 "rank 1, host 1" print all_reduce ring --hosts 2,2 --placement cyclic
expect 0 "rank 1, host 0" print all_reduce ring --hosts 2,2
expect 0 "ring all_reduce on 4 ranks of 2 hosts" verify all_reduce ring --hosts 2,2
expect 0 "12 messages between hosts; the busiest host sends 1.5 blocks to others" verify all_reduce ring --hosts 2,2
expect 0 "24 messages between hosts" verify all_reduce ring --hosts 2,2 --placement cyclic
expect 0 "of 3 hosts is proved" verify all_reduce hierarchical --hosts 2,3,5 --placement cyclic
expect 0 "hosts is proved" verify all_reduce leaders -n 9 --hosts random:1
expect 2 "expected a number as the seed" print all_reduce ring -n 9 --hosts random:x
expect 2 "give neither --placement nor a range" print all_reduce ring -n 9 --hosts random:1 --placement cyclic
expect 0 "drawn" draw all_reduce ring --hosts 1,3 -o "$dir/hosts.svg"
grep -q '>host 1<' "$dir/hosts.svg" || { echo "draw shows no hosts"; failures=$((failures + 1)); }
expect 0 "bruck:4 all_to_all on 5 ranks is proved" verify all_to_all bruck:4 -n 5
expect 0 "^total: .* problems proved, 0 refused" verify all_reduce all -n 1..9
expect 0 "contributions of ranks 0 to the rank itself exactly once and in the order" verify scan hillis_steele -n 5
expect 0 "of ranks 0 to the one before the rank exactly once" verify exclusive_scan chain -n 5
expect 0 "^exclusive_scan  *exclusive_doubling  *9 " verify exscan all -n 1..9
expect 0 "^barrier  *tree " verify all all --hosts 2,3
expect 2 "cannot write" draw all_reduce ring -n 4 -o "$dir/no/such/folder.svg"
[ "$failures" -eq 0 ]
