#!/usr/bin/env bash
# Measures the time from the creation of a Pod to its first answered request (interop/kube, BenchmarkPods): real API server, controllers and
# scheduler, a kubelet that calls contiv-cni by libcni, and as many other Pods on the node as a kubelet takes; prints a table, and records it in
# bench/results/<date>-<cpu>-<cores>-pods.md. CONTIV_VPP=/path/to/vpp: on a real VPP, in …-pods-vpp.md. SHORT=1: 12 Pods, and no record.
# Needs root, ip, the module proxy the first time, and an idle machine for figures worth keeping.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/record.sh
export GOFLAGS="${GOFLAGS:-} -mod=mod -buildvcs=false" CGO_ENABLED=0

bench interop/kube '^BenchmarkPods$' -vet=off -benchtime 1x -timeout 60m .

table() {
	awk '
		/^BenchmarkPods/ {
			for (i = 3; i < NF; i += 2) v[$(i + 1)] = $i
			print "| with " int(v["pods"]) " Pods on the node | p50 | p99 |"
			print "|---|---|---|"
			row("from the creation to the first answered request", "")
			row("of this: until the kubelet hears of the Pod (scheduler)", "scheduled-")
			row("of this: ADD, by libcni and contiv-cni, until VPP has all of the Pod", "add-")
		}
		function row(what, prefix) { printf "| %s | %s ms | %s ms |\n", what, v[prefix "p50-ms"], v[prefix "p99-ms"] }
	' "$raw"
}

vpp=simulated
if [ -n "${CONTIV_VPP:-}" ]; then vpp="a real one"; fi

echo
table
if [ -n "${SHORT:-}" ]; then exit; fi
{
	echo "- VPP: $vpp; API server, scheduler, kubelet, agent, VPP and all Pods share the cores"
	echo "- 100 Pods, each created when the one before is deleted; the program is a web server of 9 MB that is ready when it listens"
	echo "- first answered request: HTTP from outside of the node; the client waits for the address in the Pod's status, and then tries each millisecond"
	echo
	table
} | record "pods${CONTIV_VPP:+-vpp}" "From the creation of a Pod to its first answer, $(date +%F)" "; Kubernetes v1.36.3 and etcd built with it"
