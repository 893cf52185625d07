#!/bin/bash
# Runs fuzz targets until each has had its share of processor time. Time on the wall says little on a busy machine.
#
#   CPU=10m       processor time per target: of the fuzzed program and of the fuzzer
#   TARGETS=re    only targets whose "folder:Name" matches; several by spaces, in this order
#   JOBS=1        targets at a time
#   IDLE=1        only time that nobody else wants: class idle of the scheduler
#   OUT=bin/fuzz  binaries, logs, and ledger.txt: a line per run of a target
#
# An input that fails stays in testdata/fuzz of its package, where it is a regression test from then on. An input that the fuzzer calls hung (10 s
# on the wall) runs again alone: it counts as a failure only if it fails there.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
GO=${GO:-go} CPU=${CPU:-10m} JOBS=${JOBS:-1} IDLE=${IDLE:-} OUT=$(realpath -m "${OUT:-bin/fuzz}")
case $CPU in
*m) goal=$((${CPU%m} * 60)) ;;
*) goal=$((${CPU%s})) ;;
esac || exit 1
mkdir -p "$OUT" && touch "$OUT/.begun" || exit 1
idle=()
[ -z "$IDLE" ] || idle=(chrt -i 0 nice -n 19)
cache=$($GO env GOCACHE)/fuzz
module=$($GO list -m) || exit 1

all=$(git ls-files '*_test.go' | grep -vE '^(interop|tools)/' | xargs grep -HE '^func Fuzz[A-Za-z0-9_]*\(f \*testing\.F\)' |
  sed -E 's,/[^/:]*:func (Fuzz[A-Za-z0-9_]*).*,:\1,')
targets=$(for re in ${TARGETS:-.}; do grep -E "$re" <<<"$all"; done | awk '!seen[$0]++')
[ -n "$targets" ] || { echo "no target matches $TARGETS"; exit 1; }

# again PACKAGE NAME BINARY LOG: a run has failed; succeeds if all it found is an input that is slow on a busy machine, and takes that away.
again() {
  local file
  grep -qE 'hung or terminated|communicating with fuzzing process' "$4" || return 1
  file=$(sed -n 's,.*Failing input written to \(testdata/[^ ]*\).*,\1,p' "$4" | tail -1)
  [ -z "$file" ] && return 0
  (cd "$1" && timeout 300 "$3" -test.run "^$2\$/^$(basename "$file")\$" -test.timeout 240s) >>"$4" 2>&1 || return 1
  rm -f "$1/$file"
}

# build PACKAGE BINARY: once per run of this script; one at a time.
build() {
  exec 9>"$OUT/.building"
  flock 9
  [ "$2" -nt "$OUT/.begun" ] || "${idle[@]}" $GO test -c -fuzz . -o "$2" "./$1" || return 1
  exec 9>&-
}

# one TARGET: runs it until it has had its share.
one() {
  local p=${1%%:*} name=${1##*:} bin log used=0 slow=0 execs=0 rc t n
  bin=$OUT/$(tr / _ <<<"$p").test log=$OUT/$(tr / _ <<<"$p").$name.log
  build "$p" "$bin" || return 1
  while [ $used -lt "$goal" ]; do
    TIMEFORMAT='%U %S'
    # Bash measures nothing if the measured subshell is all that a substitution has to do.
    t=$({ time { (cd "$p" && exec "${idle[@]}" "$bin" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime $((goal - used + 2))s \
      -test.parallel 1 -test.fuzzcachedir "$cache/$module/$p") >"$log" 2>&1; }; } 2>&1)
    [ -n "$t" ] || { echo "$1: no processor time measured"; return 1; }
    grep -q '^PASS' "$log"; rc=$?
    used=$((used + $(awk '{printf "%d", $1 + $2 + 1}' <<<"$t")))
    n=$(sed -n 's,.*execs: \([0-9]*\).*,\1,p' "$log" | tail -1)
    execs=$((execs + ${n:-0}))
    if [ $rc != 0 ]; then
      again "$p" "$name" "$bin" "$log" || { cp "$log" "$log.failed"; echo "$(date +%T) $1 FAILED after $used s of processor time, $execs executions: $log.failed" | tee -a "$OUT/ledger.txt"; return 1; }
      slow=$((slow + 1))
    fi
  done
  echo "$(date +%T) $1 clean: $used s of processor time, $execs executions, $slow times slow" | tee -a "$OUT/ledger.txt"
}

bad=0
for t in $targets; do
  while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n || bad=1; done
  one "$t" &
done
while [ -n "$(jobs -rp)" ]; do wait -n || bad=1; done
exit $bad
