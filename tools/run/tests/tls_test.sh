#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: tls_test.sh BIN_FOLDER      A job under TLS, over TCP and the control plane: right, foreign, expired and absent certificates.
set -euo pipefail
bin=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

authority() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.pem" -subj "/CN=$1" -days 2
}
# certificate NAME AUTHORITY DAYS
certificate() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "/CN=$1"
  openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -days "$3" -out "$1.pem"
}
{
  authority ours
  authority theirs
  certificate good ours 1
  certificate foreign theirs 1
  certificate late ours -1
} >openssl.log 2>&1 || {
  cat openssl.log
  exit 1
}

# job RANK1 ALL: three ranks, which first run the shell commands ALL, and rank 1 RANK1.
job() {
  timeout 100 "$bin/tuttirun" -n 3 --env TUTTI_TRANSPORT=tcp --env "TUTTI_CONNECT_TIMEOUT=30" \
    --env "TUTTI_TLS_CERTIFICATE=$folder/good.pem" --env "TUTTI_TLS_KEY=$folder/good.key" --env "TUTTI_TLS_CA=$folder/ours.pem" \
    sh -c "$2 if [ \$RANK = 1 ]; then $1; fi; exec '$bin/tutti-perf' all_reduce -b 8 -e 1M -f 64 -n 3 -w 1" >job.log 2>&1
}
# refused NAME RANK1 TEXT...: the job fails and says one of the texts.
refused() {
  local name=$1 commands=$2 all=${all:-}
  shift 2
  if job "$commands" "$all"; then
    echo "$name: the job went on"
    exit 1
  fi
  for text in "$@"; do
    if grep -q -- "$text" job.log; then
      echo "$name: refused: $(grep -m 1 -- "$text" job.log)"
      return
    fi
  done
  echo "$name: none of these words: $*"
  cat job.log
  exit 1
}

job true "" || {
  echo "right certificates:"
  cat job.log
  exit 1
}
grep -q "Out of bounds values : 0 OK" job.log
refused foreign "export TUTTI_TLS_CERTIFICATE='$folder/foreign.pem' TUTTI_TLS_KEY='$folder/foreign.key'" \
  "refuses this rank's certificate" "its certificate is refused"
refused expired "export TUTTI_TLS_CERTIFICATE='$folder/late.pem' TUTTI_TLS_KEY='$folder/late.key'" "late.pem: the certificate has expired"
# Rank 0, which saw who was turned away, is the first to give up.
all="if [ \$RANK = 0 ]; then export TUTTI_CONNECT_TIMEOUT=4; fi;" refused absent "unset TUTTI_TLS_CERTIFICATE TUTTI_TLS_KEY TUTTI_TLS_CA" "TUTTI_TLS_CERTIFICATE"
refused "half a set" "unset TUTTI_TLS_KEY" "TUTTI_TLS_KEY is not"
refused "another's key" "export TUTTI_TLS_KEY='$folder/foreign.key'" "no key of TUTTI_TLS_CERTIFICATE"
