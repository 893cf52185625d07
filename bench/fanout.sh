#!/usr/bin/env bash
# Measures our fan-out server beside the real Typha's sync server (interop), each in a separate process under the same load,
# prints a table with the bars, and records it in bench/results/<date>-<cpu>-<cores>-fanout.md. SHORT=1: two small rows, once,
# and no record. Needs the module proxy the first time, and an idle machine for figures worth keeping. Where it may, it lets the
# machine's TCP use cubic meanwhile, Linux's default: one that paces (bbr) makes loopback's clock most of what a herd waits for.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/record.sh
RUNS=${RUNS:-3} # of each row; the table has medians
export GOFLAGS="${GOFLAGS:-} -mod=mod -buildvcs=false" GONOSUMDB="github.com/projectcalico/*"

control=/proc/sys/net/ipv4/tcp_congestion_control
before=$(cat $control)
if (echo cubic >$control) 2>/dev/null; then trap 'echo "$before" >$control; rm -f "$raw"' EXIT; fi

measure() { # pattern
	bench interop "$1" -vet=off -benchtime 1x -timeout 60m .
}

if [ -n "${SHORT:-}" ]; then
	measure '^BenchmarkFanout$/./^clients=(1|10)$'
else
	for _ in $(seq "$RUNS"); do measure '^BenchmarkFanout$'; done # both servers by turns
	measure '^BenchmarkFanoutIdle$'
fi

table() {
	awk '
		function median(key,   n, i, j, t, a) {
			n = split(all[key], a, " ")
			for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] + 0 < a[j - 1] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
			return a[int((n + 1) / 2)]
		}
		function row(clients, what, unit, bar,   t, o, verdict) {
			t = median("typha/" clients "/" unit); o = median("ours/" clients "/" unit)
			verdict = bar == "" ? "" : (o + 0 <= t + 0 ? "holds" : "**missed**")
			printf "| %s | %s | %s | %s | %s |\n", clients, what, t, o, verdict
		}
		/^BenchmarkFanout\// {
			split($1, part, "[/=]"); server = part[3]; clients = part[5]; sub(/-[0-9]+$/, "", clients)
			for (i = 3; i < NF; i += 2) all[server "/" clients "/" $(i + 1)] = all[server "/" clients "/" $(i + 1)] " " $i
			if (!seen[clients]++) order[++rows] = clients
		}
		/^BenchmarkFanoutIdle\// {
			split($1, part, "/"); how = part[2]; sub(/-[0-9]+$/, "", how)
			for (i = 3; i < NF; i += 2) idle[how "/" $(i + 1)] = $i
		}
		END {
			print "| clients | what | Typha | ours | bar: not behind |"; print "|---|---|---|---|---|"
			for (r = 1; r <= rows; r++) {
				c = order[r]
				row(c, "in sync, first herd: p50, ms", "first-p50-ms", 1)
				row(c, "in sync, first herd: max, ms", "first-max-ms", 1)
				row(c, "in sync, later herds: p50, ms", "again-p50-ms", 1)
				row(c, "in sync, later herds: max, ms", "again-max-ms", 1)
				row(c, "processor time of all herds, s", "snap-cpu-s", 1)
				row(c, "processor time of 10,000 updates, s", "update-cpu-s", 1)
				row(c, "most resident memory, MB", "peak-MB", 1)
				row(c, "snapshot, bytes", "snapshot-B", 1)
				row(c, "update late: p50, ms", "late-p50-ms", "")
				row(c, "update late: max, ms", "late-max-ms", "")
			}
			n = split("plain tls", hows, " ")
			for (r = 1; r <= n; r++) {
				how = hows[r]
				if ((how "/peak-MB") in idle)
					printf "\n2,000 idle clients of ours, %s: %s MB at most (bar 256: %s), %s s of processor time in 30 s.\n",
						how, idle[how "/peak-MB"], idle[how "/peak-MB"] + 0 <= 256 ? "holds" : "**missed**", idle[how "/idle-cpu-s"]
			}
		}
	' "$raw"
}

echo
table
if [ -n "${SHORT:-}" ]; then exit; fi
{
	echo "- 100,000 endpoints, fed as lines; clients on the same machine count bytes, which stay in the kernel; then 1,000 updates/s for 10 s,"
	echo "  which one client more decodes. TCP's congestion control: $(cat $control). Medians of $RUNS runs, each with new processes; processor time and memory are the server's alone"
	echo
	table
} | record fanout "Fan-out server against Typha v3.31.0, $(date +%F)" "; Typha's own sync server with the toolchain Calico needs"
