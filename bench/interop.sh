#!/usr/bin/env bash
# Measures our calculation graph against the real one of Felix (interop), both in one process and in turn, prints a table
# with the bars, and records it in bench/results/<date>-<cpu>-<cores>-felix.md. SHORT=1: the small clusters, once, and no
# record. Needs the module proxy the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/record.sh
RUNS=${RUNS:-3} # of each large snapshot
export GOFLAGS="${GOFLAGS:-} -mod=mod -buildvcs=false" GONOSUMDB="github.com/projectcalico/*"

measure() { # pattern, benchtime
	bench interop "$1" -vet=off -benchtime "$2" -timeout 20m .
}

if [ -n "${SHORT:-}" ]; then
	measure '^BenchmarkSnapshot$/^netsets=1000$' 1x
	measure '^BenchmarkEndpointUpdate$' 1x
else
	measure '^BenchmarkSnapshot$/^(tags=10000|netsets=1000)$/^pods=10000$' "$((2 * RUNS + 1))x"
	measure '^BenchmarkSnapshot$/^tags=10000$/^pods=250000$' "${RUNS}x"
	measure '^BenchmarkSnapshot$/^netsets=10000$' "${RUNS}x"
	measure '^Benchmark(EndpointUpdate|SelectorAdd|NamespaceUpdate)$' 1x
fi

table() {
	awk '
		BEGIN { print "| what | Felix | ours | ratio | bar |"; print "|---|---|---|---|---|" }
		function row(what, theirs, mine, ratio, bar) {
			printf "| %s | %s | %s | %.1f | %s |\n", what, theirs, mine, ratio, bar ? bar " ×" (ratio + 0 >= bar ? ", holds" : ", **missed**") : ""
		}
		{
			split("", v); for (i = 3; i < NF; i += 2) v[$(i + 1)] = $i
			name = $1; sub(/-[0-9]+$/, "", name); sub(/^Benchmark/, "", name); sub(/\//, ": ", name)
		}
		/^BenchmarkSnapshot/ {
			row(name, v["felix-ms"] " ms", v["ours-ms"] " ms", v["time-ratio"], 5)
			row(name ", processor time", "", "", v["cpu-ratio"], 5)
			row(name ", heap", v["felix-MB"] " MB", v["ours-MB"] " MB", v["heap-ratio"], 3)
			next
		}
		/^Benchmark/ {
			bar = /NamespaceUpdate/ ? 0 : 10
			row(name, v["felix-ms"] " ms", v["ours-ms"] " ms", v["time-ratio"], bar)
			row(name ", processor time", "", "", v["cpu-ratio"], bar)
		}
	' "$raw"
}

echo
table
if [ -n "${SHORT:-}" ]; then exit; fi
{
	echo "- workloads of Felix's own benchmarks; times are medians of $RUNS (small clusters: $((2 * RUNS + 1))), by the clock and of all processors; heap is what"
	echo "  the graph holds when it has sent all there is and the objects it was given are let go"
	echo
	table
} | record felix "Calculation graph against Felix v3.31.0, $(date +%F)" "; both graphs built with it and run in one process, in turn"
