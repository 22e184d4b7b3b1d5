#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# completion_test.sh BIN: what the completion offers after a beginning of a command line, with the programs of BIN.
set -uo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
PATH=$1:$PATH
. "$here/../completion.bash" || exit 1
faults=0

# offers "BEGINNING" EXPECTED...: completes the last word of BEGINNING; all of EXPECTED, and "-WORD" for what must not be offered.
offers() {
  local line=$1 wanted offered
  shift
  read -ra COMP_WORDS <<<"${line//=/ = }"
  [[ $line == *[\ =] ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMPREPLY=()
  _tutti
  offered=" ${COMPREPLY[*]-} "
  for wanted in "$@"; do
    case $wanted in
    not:*) [[ $offered != *" ${wanted#not:} "* ]] ;;
    nothing) [[ $offered == "  " ]] ;;
    *) [[ $offered == *" $wanted "* ]] ;;
    esac || {
      echo "\"$line\" offers:$offered, expected $wanted"
      faults=$((faults + 1))
    }
  done
}

cd "$(mktemp -d)" || exit 1
mkdir folder
touch file.json script.sh
offers "tuttirun --" --ranks --stdin --survive not:-n
offers "tuttirun -n " nothing
offers "tuttirun -n 4 --stdin " rank0 none not:file.json
offers "tuttirun --stdin=r" rank0 not:none
offers "tuttirun -n 2 scr" script.sh
offers "tuttirun -n 2 tutti-in" tutti-info
offers "tuttirun -n 2 sh scr" script.sh
offers "tutti-perf all_r" all_reduce not:broadcast
offers "tutti-perf " buckets growth all_reduce barrier not:file.json
offers "tutti-perf buckets --" --wire --advance not:--plot
offers "tutti-perf buckets --wire b" bfloat16 not:float16
offers "tutti-perf buckets f" file.json
offers "tutti-perf growth --" --ranks --as --splits --limit not:--wire
offers "tutti-perf growth --as " threads processes both
offers "tutti-perf growth -J f" file.json
offers "tutti-perf all_reduce --plo" --plot
offers "tutti-perf all_reduce --op m" min max not:sum
offers "tutti-perf all_reduce -J f" file.json folder
offers "tutti-plan " print verify draw not:--help
offers "tutti-plan verify --" --ranks --placement not:--version not:--follow
offers "tutti-plan draw --fo" --follow
offers "tutti-doctor compare " file.json
offers "tutti-trace f" folder
offers "no-such-program --" nothing
rm -r "$PWD"
((faults == 0)) && echo "all completions as expected"
exit $((faults > 0))
