#!/bin/bash
# go build that says what it does if that takes longer than a moment: what it builds, and every few seconds how far it is.
#
#   tools/build.sh OUTPUT ARGUMENTS-OF-GO-BUILD...
#
# GO is the go command, EVERY=5 the pause between two lines in seconds. Packages in the build cache are not counted, so the number of all packages is
# an upper bound. What go says passes, errors and downloads; the exit code is that of go.
set -uo pipefail
GO=${GO:-go} out=$1 every=${EVERY:-5} began=$SECONDS
shift

# report PAUSE counts the packages that go build -v names as it compiles them, and says so on standard error.
report() {
  local pause=$1 done=0 all='' last='' line part='' code
  while :; do
    IFS= read -r -t "$every" line
    code=$?
    line=$part$line part=''
    if [ $code -gt 128 ]; then # nothing was said for so long
      part=$line
    elif [ $code -ne 0 ] && [ -z "$line" ]; then
      return
    elif [[ $line == *[:\ ]* ]]; then
      echo "$line" >&2
    else
      done=$((done + 1)) last=$line
    fi
    if [ $done -eq 0 ] || [ $((SECONDS - began)) -lt "$pause" ]; then
      continue
    fi
    if [ -z "$all" ]; then
      mapfile -t all < <($GO list -deps "${@:2}" 2>/dev/null) # not grep: a machine may have only Go and make
      all=${#all[@]}
      echo "building $out: without a build cache this takes minutes" >&2
    fi
    echo "building $out, $((SECONDS - began))s: $done of at most $all packages compiled, now $last" >&2
    pause=$((SECONDS - began + every))
  done
}

$GO build -v -o "$out" "$@" 2>&1 | report "$every" "$@"
exit "${PIPESTATUS[0]}"
