#!/usr/bin/env bash
# Measures the agent (test/bench) and the rooms it is made of, prints a table, and records it with the machine it was
# measured on in bench/results/<date>-<cpu>-<cores>.md. With CONTIV_VPP=/path/to/vpp a real VPP is measured as well; with
# BEFORE=bench/results/….md the table of that file is set beside the new one; NAME is appended to the name of the file; with
# ONLY=External only that is measured.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/record.sh
began=$(date +%s)

measure() { # pattern, benchtime, packages
	local pattern=$1 count=$2
	[[ -z ${ONLY:-} || $pattern == *$ONLY* ]] || return 0
	shift 2
	bench . "$pattern" -benchtime "$count" -timeout 9m "$@"
}

measure '^BenchmarkFirstSync$' 9x ./test/bench
measure '^BenchmarkResync$' 21x ./test/bench
measure '^BenchmarkEndpointChange$' 5000x ./test/bench
measure '^BenchmarkMemory$' 1x ./test/bench
measure '^BenchmarkExternal$' 9x ./test/bench
measure '^BenchmarkTrace$' 3x ./test/bench
measure '^BenchmarkSupervisor$' 15x ./calico/felix
rooms=$(wc -l <"$raw")
measure . 100ms ./kv ./vpp ./renderer/... ./plugins/... ./source/... ./sim/... ./trace

# table: what was measured, the figure, what it is measured against, and the bar where there is one.
table() {
	awk '
		function row(what, figure, against, bar) { printf "| %s | %s | %s | %s |\n", what, figure, against, bar }
		function verdict(holds, bar) { return bar (holds ? ", holds" : ", **missed**") }
		BEGIN {
			row("what", "agent", "against", "bar"); print "|---|---|---|---|"
			split("vpp=a real VPP,sim=the sim,null=the null peer", list, ",")
			for (i in list) { split(list[i], kv, "="); peers[kv[1]] = kv[2] }
		}
		{
			split("", v); for (i = 3; i < NF; i += 2) v[$(i + 1)] = $i
			name = $1; sub(/-[0-9]+$/, "", name); sub(/^Benchmark/, "", name)
			peer = name; sub(/.*peer=/, "", peer); sub(/\/.*/, "", peer)
			n = name; sub(/.*(services|values)=/, "", n)
		}
		/^BenchmarkFirstSync\// {
			row("first sync of 10,000 × 10, " peers[peer], v["agent-ms"] " ms", "bare loop " v["bare-ms"] " ms, ratio " v["ratio"] "; one request at a time " v["sequential-ms"] " ms",
				peer == "null" ? "" : verdict(v["ratio"] <= 1.5, "1.5 ×"))
		}
		/^BenchmarkResync\// {
			row("unchanged resync of 10,000 × 10, " peers[peer], v["agent-ms"] " ms", "bare dump " v["bare-ms"] " ms, ratio " v["ratio"],
				peer == "null" ? "" : verdict(v["ratio"] <= 1.5, "1.5 ×"))
		}
		/^BenchmarkEndpointChange\// {
			row("event → acknowledged, " n " services × 10, " peers[peer], "p50 " v["p50-µs"] " µs, p99 " v["p99-µs"] " µs",
				"100 services: " v["x100"] " ×", verdict(v["writes/op"] == 1, v["writes/op"] " write"))
		}
		/^BenchmarkMemory\// { row("heap per endpoint, " n " services × 10", v["B/endpoint"] " B", "", "") }
		/^BenchmarkSupervisor\/driver=discards/ {
			row("100,000 members and 10,000 policies to a driver outside that only reads", v["driver-ms"] " ms", "to a pipe nobody looks into " v["bare-ms"] " ms, ratio " v["ratio"],
				verdict(v["ratio"] <= 1.5, "1.5 ×"))
		}
		/^BenchmarkSupervisor\/driver=decodes/ {
			row("100,000 members and 10,000 policies to a driver outside that is ours", v["driver-ms"] " ms", "to one that decodes by protobuf " v["protobuf-ms"] " ms, ratio " v["ratio"],
				verdict(v["ratio"] <= 1, "1 ×"))
		}
		/^BenchmarkExternal/ {
			row(n " DNAT44s × 4 of another program in one transaction, " peers[peer], v["agent-ms"] " ms, " v["µs/value"] " µs per value above the writes; processors: " v["cpu-µs/value"] " µs",
				"bare writes " v["bare-ms"] " ms; a value of 1,000: " v["x1000"] " ×", verdict(v["cpu-µs/value"] <= 20, "20 µs of processors per value"))
		}
		/^BenchmarkTrace/ { row("trace: 1,000 objects, 10,000 packets", "load " v["load-s"] " s, answers " v["answers-s"] " s", "", "seconds") }
	' <(head -n "$rooms" "$raw")
}

# compared: the rows two tables have in common, one beside the other.
compared() {
	echo "| what | before | after | before, against | after, against |"
	echo "|---|---|---|---|---|"
	awk -F ' *[|] *' 'FNR == NR { if (NF > 4) { figure[$2] = $3; against[$2] = $4 } next }
		NF > 4 && ($2 in figure) && $2 != "what" && $2 !~ /^-/ { printf "| %s | %s | %s | %s | %s |\n", $2, figure[$2], $3, against[$2], $4 }' "$1" -
}

before=$(mktemp)
trap 'rm -f "$raw" "$before"' EXIT
[ -z "${BEFORE:-}" ] || cp "$BEFORE" "$before" # it may be the file to be written
echo
table
{
	echo "- peers: the sim (in the process of the agent, so both share the cores), the null peer (answers from a tape)$(
		grep -m 1 '^vpp: ' "$raw" | sed 's/^vpp: /, VPP /' || true
	)"
	echo "- both sides of a ratio were measured in turn in the same run; times are medians"
	echo
	table
	if [ -s "$before" ]; then
		echo
		table | compared "$before"
	fi
} | record "${NAME:-}" "Benchmarks of $(date +%F)" ", $(($(date +%s) - began)) s"
