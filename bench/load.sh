#!/usr/bin/env bash
# Measures one agent under load (interop/kube, BenchmarkLoad): a load generator makes 5,000 Services of 10 endpoints each at a real API server,
# then changes 50 of them a second; prints a table, and records it in bench/results/<date>-<cpu>-<cores>-load.md.
# Needs the right to make network namespaces, the module proxy the first time, and an idle machine for figures worth keeping.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/record.sh
export GOFLAGS="${GOFLAGS:-} -mod=mod -buildvcs=false"

bench interop/kube '^BenchmarkLoad$' -vet=off -benchtime 1x -timeout 60m .

table() {
	awk '
		/^BenchmarkLoad\/services=/ {
			for (i = 3; i < NF; i += 2) v[$(i + 1)] = $i
			print "| what | |"
			print "|---|---|"
			row("the load generator and the API server need", v["create-s"] " s")
			row("in sync after the last Service exists", v["then-in-sync-s"] " s")
			row("processor time of the agent for all that", v["create-cpu-s"] " s")
			row("memory then, and at most", v["grown-MB"] " MB, " v["grown-peak-MB"] " MB")
			row("changes a second", v["changes/s"])
			row("network programming latency: p50", v["p50-ms"] " ms")
			row("network programming latency: p99", v["p99-ms"] " ms")
			row("network programming latency: at most", v["max-ms"] " ms")
			row("processor time of the agent for a change", v["cpu-ms/change"] " ms")
			row("memory then, and at most", v["changed-MB"] " MB, " v["changed-peak-MB"] " MB")
			row("an agent that starts when all exists: in sync after", v["start-in-sync-s"] " s")
			row("its processor time", v["start-cpu-s"] " s")
			row("its memory, and at most", v["started-MB"] " MB, " v["started-peak-MB"] " MB")
			row("an agent that starts again on a VPP that has it all: in sync after", v["again-in-sync-s"] " s")
		}
		function row(what, value) { printf "| %s | %s |\n", what, value }
	' "$raw"
}

echo
table
{
	echo "- 5,000 Services of 10 endpoints, each with an EndpointSlice, made 16 at a time; then 1,500 changes, each of one endpoint for one never"
	echo "  seen before, begun 50 a second whether or not the last one is programmed"
	echo "- in sync: a connection from the node to each Service gets to an endpoint of it, in the VPP (simulated, in the process of the load"
	echo "  generator). For an agent that starts: it says that it is ready, and then the same"
	echo "- latency: from just before the API server is asked until VPP has answered the messages that bring the new endpoint and take the old one;"
	echo "  seen from outside. The agent collects changes for 5 ms"
	echo "- processor time and memory: the agent's alone; all on the same cores"
	echo
	table
} | record load "The agent under load, $(date +%F)" "; Kubernetes v1.36.3 and etcd built with it"
