#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What fresh-root runs as root within the fresh root.
set -euo pipefail
cd /home/tester

stop() {
  echo "fresh-root: $*" >&2
  exit 1
}
quietly() { "$@" >/tmp/log 2>&1 || { cat /tmp/log; stop "failed: $*"; }; }
as_user() { setpriv --reuid=tester --regid=tester --clear-groups env HOME=/home/tester bash -euo pipefail -c "$1"; }
# right WHAT TEXT COMMAND: the command of the user prints TEXT.
right() {
  local told
  told=$(as_user "$3" 2>&1) || stop "$1: \"$3\" failed: $told"
  [[ $told == *"$2"* ]] || stop "$1: expected \"$2\", got: $told"
  echo "ok: $1"
}
state() {
  find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /home -o -path /var/cache -o -path /var/log \
    -o -path /var/lib/apt -o -path /var/lib/dpkg \) -prune -o -print | sort
  dpkg-query -W -f 'package ${Package} ${db:Status-Status}\n' | sort
  dpkg-divert --list | sort
}
# The programs of an application's author.
applications() {
  right "$1: a C program by pkg-config" "2 ranks, sum 1" \
    "$2 cc -std=c11 application/average.c -o c-program \$(pkg-config --cflags --libs tutti) && $2 tuttirun -n 2 ./c-program"
  right "$1: a C++ program by find_package" "2 ranks, sum 1" \
    "$2 rm -rf b && cmake -S application -B b -DLANGUAGE=CXX && cmake --build b && tuttirun -n 2 b/average"
}

useradd --no-create-home tester
chown -R tester: .
quietly apt-get update
# What users of Tutti have anyway; what it needs itself comes with its packages, or by README's command.
[[ -n $TREE ]] || quietly apt-get install --yes --no-install-recommends gcc g++ make cmake pkg-config python3 python3-numpy
echo 'APT::Install-Recommends "false";' >/etc/apt/apt.conf.d/00fresh
state >/tmp/before

echo "== install"
quietly bash -eux install.sh
dpkg-query -W -f '${Package} ${Version}\n' '*tutti*'
quietly dpkg --audit
right "the page's commands, as a user" "Out of bounds values : 0 OK" "bash -eu use.sh"
right "plugins are found" "tutti/libtutti-shm.so" tutti-info
right "README's lines for an installed Tutti" "" "bash -eu readme.sh"
applications "packages" ""
[[ -s /usr/share/man/man1/tuttirun.1.gz ]] || stop "there is no man page of tuttirun"
right "completion" "--survive" '. /usr/share/bash-completion/completions/tuttirun; COMP_WORDS=(tuttirun --su) COMP_CWORD=1; _tutti; echo "${COMPREPLY[@]}"'

echo "== remove"
quietly bash -eux remove.sh
if [[ -n $TREE ]]; then
  # The packages that the build needs stay.
  ! state | grep -i tutti || stop "the lines above are Tutti's: expected that nothing of it is left after the purge"
  echo "ok: nothing of Tutti is left after the purge"
  echo "all steps in the fresh root passed"
  exit 0
fi
quietly apt-get autoremove --purge --yes
state >/tmp/after
diff /tmp/before /tmp/after || stop "the lines above differ from before the installation: expected that nothing is left"
echo "ok: nothing is left after the purge"

echo "== tarball"
quietly apt-get install --yes libfmt9 libssl3
sed -i 's/^tutti-info$/tutti-info >info.txt/' tarball.sh
right "the page's commands, as a user" "Out of bounds values : 0 OK" "bash -eu tarball.sh"
settings='export PATH="$PWD/my tutti/bin:$PATH" CMAKE_PREFIX_PATH="$PWD/my tutti" PYTHONPATH="$PWD/my tutti/lib/python3/dist-packages";'
right "plugins beside the moved library are found" "my tutti/lib" "$settings tutti-info | grep libtutti-shm.so"
right "README's Python lines" "" "$settings python3 -m tutti.run -n 4 gradient.py"
# A compiler's flags are words: a folder without a space in its name.
right "moved again" "" 'mv "my tutti" moved'
settings='export PATH=$PWD/moved/bin:$PATH CMAKE_PREFIX_PATH=$PWD/moved PKG_CONFIG_PATH=$(dirname $(find $PWD/moved -name tutti.pc));'
settings+=' export LD_LIBRARY_PATH=$(pkg-config --variable=libdir tutti);'
applications "tarball" "$settings"
echo "all steps in the fresh root passed"
