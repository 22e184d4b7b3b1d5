#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# manuals_test.sh FOLDER PROGRAM...: each program has a page there, with a name, a synopsis and its options, that names no path of the build.
set -euo pipefail
folder=$1
shift
for program in "$@"; do
  page=$folder/$program.1
  fault() {
    echo "$page: $*" >&2
    exit 1
  }
  [[ -s $page ]] || fault "is not there"
  for part in "^$program "'\\- ' '^\.SH SYNOPSIS' '^\.SH DESCRIPTION'; do grep -q -- "$part" "$page" || fault "has no line \"$part\""; done
  ! grep -n -- "$folder\|/bin/$program" "$page" || fault "names a path of the build"
done
# Of a program with subcommands: theirs, too.
grep -q 'options of verify' "$folder/tutti-plan.1" && grep -q '\\-\\-placement' "$folder/tutti-plan.1" ||
  { echo "tutti-plan.1 does not have the options of its subcommand verify" >&2; exit 1; }
echo "$# man pages are whole"
