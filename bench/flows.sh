#!/usr/bin/env bash
# Measures what flows cost (test/realvpp, BenchmarkVPPFlows): processor time of an agent's process at 1,000 new connections a second, without
# flows, with sessions and with flowprobe, with NAT44 and cnat; and the time from a denied packet until contiv-agent flows -f prints it: at most 1 s on an
# idle machine (99 %). With a VPP that has flowprobe also VPP's clocks for a packet (BenchmarkVPPFlowsForwarding). Prints tables, and records them in bench/results/<date>-<cpu>-<cores>-flowcost.md. CONTIV_VPP=/path/to/vpp or sim. SHORT=1: 5 s each, and no record.
# Needs root, ip, and an idle machine for figures worth keeping.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/record.sh
export CONTIV_VPP=${CONTIV_VPP:-sim} CGO_ENABLED=0
if [ -n "${SHORT:-}" ]; then export CONTIV_FLOWS_SECONDS=5 CONTIV_FLOWS_ROUNDS=1; fi

bench . '^BenchmarkVPPFlows(Forwarding)?$' -tags grpcnotrace -vet=off -benchtime 1x -timeout 60m ./test/realvpp

table() {
	awk '
		/^BenchmarkVPPFlows\// {
			delete v
			for (i = 3; i < NF; i += 2) v[$(i + 1)] = $i
			split($1, name, "/")
			sub(/-[0-9]+$/, "", name[3])
			if (!n++) {
				print "| Services by | flows | processor time | memory | a denial is printed after: median | 99 % | longest |"
				print "|---|---|---|---|---|---|---|"
			}
			printf "| %s | %s | %.1f %% of a core | %.0f MB | %s | %s | %s |\n", name[2], name[3], v["cpu-%"], v["MB"],
				ms(v["denial-p50-ms"]), ms(v["denial-p99-ms"]), ms(v["denial-max-ms"])
		}
		function ms(x) { return x == "" ? "" : x " ms" }
	' "$raw"
}

forwarding() {
	awk '
		/^BenchmarkVPPFlowsForwarding\// {
			delete v
			for (i = 3; i < NF; i += 2) v[$(i + 1)] = $i
			split($1, name, "/")
			sub(/-[0-9]+$/, "", name[2])
			if (!n++) {
				print ""
				print "VPP, clocks for a packet in all nodes but those that give it to the kernel, and millions of packets a second at that cost; medians, and medians of the ratios of a round:"
				print ""
				print "| Services by | packets | flows off | `--flows` | with flowprobe |"
				print "|---|---|---|---|---|"
			}
			row("pod", "to a pod that 100 policies select")
			row("service", "of that pod to a Service")
		}
		function row(kind, what) {
			printf "| %s | %s | %s | %s | %s |\n", name[2], what, cell(kind "-off", 0), cell(kind "-flows", 1), cell(kind "-flowprobe", 1)
		}
		function cell(k, ratio) {
			return sprintf("%.0f (%.2f M/s)%s", v[k "-clocks"], v[k "-Mpps"], ratio ? sprintf(", %.0f %%", v[k "-%"]) : "")
		}
	' "$raw"
}

echo
table
forwarding
if [ -n "${SHORT:-}" ]; then exit; fi
{
	echo "- VPP: $(basename "$CONTIV_VPP"); the agent, VPP and the sender share the cores"
	echo "- objects: the guestbook, a pod that 100 NetworkPolicies select, and a Service that it dials. 1,000 new connections a second for 60 s, after 15 s: TCP"
	echo "  and UDP to the pod, from it, and by the Service; one in ten is denied"
	echo "- 200 denied packets, one after the other, at \`--flows 1s\`"
	echo
	table
	forwarding
} | record flowcost "Costs of flows, $(date +%F)" ""
