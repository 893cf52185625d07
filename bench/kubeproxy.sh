#!/usr/bin/env bash
# Measures the agent beside kube-proxy in its nftables and iptables modes (interop/kube): the same real API server, the same changes of EndpointSlices,
# one program at a time in a network namespace; prints a table with the bars, and records it in
# bench/results/<date>-<cpu>-<cores>-kubeproxy.md. With CONTIV_VPP=/path/to/vpp also on a real VPP. SHORT=1: 100 services, and no record.
# Needs nft (and for the iptables mode Debian's iptables), the right to make network namespaces, the module proxy the first time, and an idle machine for figures worth keeping.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/record.sh
export GOFLAGS="${GOFLAGS:-} -mod=mod -buildvcs=false"

pattern='^BenchmarkKubeProxy$'
if [ -n "${SHORT:-}" ]; then
	pattern+='/^services=100$'
fi
bench interop/kube "$pattern" -vet=off -benchtime 1x -timeout 90m .

table() {
	awk '
		function ratio(a, b) { return b > 0 ? a / b : 0 }
		function verdict(holds) { return holds ? "holds" : "**missed**" }
		BEGIN {
			name["kube-proxy=1s"] = "kube-proxy, minSyncPeriod 1s (its default)"
			name["kube-proxy=1ns"] = "kube-proxy, minSyncPeriod 1ns (the least it takes)"
			name["kube-proxy-iptables=1s"] = "kube-proxy in its iptables mode, minSyncPeriod 1s (its default)"
			name["kube-proxy-iptables=1ns"] = "kube-proxy in its iptables mode, minSyncPeriod 1ns"
			name["agent=sim"] = "contiv-agent, the sim in a separate process"
			name["agent=vpp"] = "contiv-agent, a real VPP"
			print "| services | what | change → programmed, p50 | at most | processor time per change | memory | everything programmed after |"
			print "|---|---|---|---|---|---|---|"
		}
		/^BenchmarkKubeProxy\/services=/ {
			split($1, part, "/"); n = part[2]; sub(/services=/, "", n); who = part[3]; sub(/-[0-9]+$/, "", who)
			split("", v); for (i = 3; i < NF; i += 2) v[$(i + 1)] = $i
			p50[n, who] = v["p50-ms"]; work[n, who] = v["cpu-ms/change"]; idle[n, who] = v["idle-cpu-ms/change"]; most = n + 0 > most + 0 ? n : most
			if (least == "" || n + 0 < least + 0) least = n
			seen[who] = 1
			printf "| %s | %s | %s ms | %s ms | %s ms, of which %s ms without changes%s | %s MB, at most %s MB | %s s |\n", n, name[who], v["p50-ms"], v["max-ms"], v["cpu-ms/change"], v["idle-cpu-ms/change"],
				("vpp-cpu-ms/change" in v) ? ", and " v["vpp-cpu-ms/change"] " ms of the sim" : "", v["MB"], v["peak-MB"], v["ready-s"]
		}
		END {
			print ""
			for (who in seen) if (who ~ /^agent/) {
				for (than in seen) if (than ~ /^kube-proxy/) {
					r = ratio(p50[most, than], p50[most, who])
					printf "- %s services, %s: %.0f × less latency than %s (bar 10 ×: %s)\n", most, name[who], r, name[than], verdict(r >= 10)
				}
				if (least != most) {
					r = ratio(work[most, who], work[least, who])
					printf "- %s: processor time per change at %s services is %.2f × that at %s (bar 1.5 ×: %s)", name[who], most, r, least, verdict(r <= 1.5)
					printf "; without the work of the same time without changes %.2f ×\n", ratio(work[most, who] - idle[most, who], work[least, who] - idle[least, who])
				}
			}
			if (least != most) for (who in seen) if (who ~ /^kube-proxy/)
				printf "- %s: processor time per change at %s services is %.0f × that at %s\n", name[who], most, ratio(work[most, who], work[least, who]), least
		}
	' "$raw"
}

echo
table
if [ -n "${SHORT:-}" ]; then exit; fi
{
	echo "- Services of 2 endpoints; a change replaces one endpoint of an EndpointSlice by one never seen before; the next comes up to 0.5 s after the"
	echo "  last one is programmed. 20 changes of kube-proxy's (10 at 10,000 services), 100 of the agent's"
	echo "- programmed: the kernel reports the nftables transaction with the new endpoint; VPP has answered the messages that bring the new endpoint"
	echo "  and take the old one. Both are seen from outside, from just before the API server was asked; the agent collects changes for 5 ms"
	echo "- iptables mode, with the kernel's legacy tables: programmed when iptables-restore has ended, seen up to 1 ms and the end of a shell later"
	echo "- processor time: kube-proxy with its nft or iptables-restore, or the agent; without the API server. A real VPP polls, so its own says nothing."
	echo "  Without changes: the work of the same time when nothing changes (the agent compares VPP with the desired state every 30 s)"
	echo
	table
} | record kubeproxy "kube-proxy v1.36.3 (nftables, iptables) and the agent, $(date +%F)" "; kube-proxy, API server and etcd built with it; nft $(nft --version | awk '{ print $2 }')"
