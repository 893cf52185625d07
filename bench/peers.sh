#!/usr/bin/env bash
# Measures the agent beside its peers in one run on one machine: the bare writer and the sequential one, Felix's calculation graph, Typha's
# sync server, and kube-proxy. Each script records its page in bench/results. Then docs/benchmarks.md and its plots are made from these pages.
# With CONTIV_VPP=/path/to/vpp also on a real VPP. PAGES="a.md b.md": make the page from these records, and measure nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${PAGES:-}" ]; then
	began=$(mktemp)
	trap 'rm -f "$began"' EXIT
	NAME=peers ONLY=FirstSync bench/run.sh
	RUNS=${RUNS:-3} bench/interop.sh
	RUNS=${RUNS:-3} bench/fanout.sh
	bench/kubeproxy.sh
	PAGES=$(find bench/results -name '*.md' -newer "$began" | sort)
fi
pages=()
for p in $PAGES; do pages+=("../../$p"); done
cd tools/pictures && GOFLAGS="${GOFLAGS:-} -mod=mod -buildvcs=false" ${GO:-go} run . benchmarks ../../docs/benchmarks.md "${pages[@]}"
