#!/bin/bash
# Runs tests with the race detector: tools/race.sh ARGUMENTS-OF-GO-TEST... GO is the go command.
#
# The detector itself ends a process now and then, by a failed check in its runtime (Go 1.26, tsan_rtl.cpp, "kEpochLast"). That is no race and no failed test.
# Such packages run once more, and the last line names them. Any other failure stays one.
set -uo pipefail
GO=${GO:-go} log=$(mktemp)
trap 'rm -f "$log"' EXIT
$GO test -race "$@" 2>&1 | tee "$log"
code=${PIPESTATUS[0]}
[ "$code" -ne 0 ] || exit 0

# Prints the packages that the detector ended; fails if a package failed by anything else.
ended=$(awk '
  /^ThreadSanitizer: CHECK failed/ { check = 1 }
  /^ *--- FAIL|^WARNING: DATA RACE|^panic: |^fatal error: / { other = 1 }
  /^(ok|FAIL)[ \t]+[^ \t]+\/[^ \t]+/ {
    if ($1 == "FAIL" && check) print $2
    else if ($1 == "FAIL") other = 1
    check = 0
  }
  END { exit other }
' "$log") && [ -n "$ended" ] || exit "$code"

flags=()
for a in "$@"; do
  case $a in ./*) ;; *) flags+=("$a") ;; esac
done
echo "the race detector failed in $ended: once more"
# shellcheck disable=SC2086 # one word for each package
$GO test -race "${flags[@]}" $ended || exit
echo "passed, but the race detector itself failed once in $ended"
