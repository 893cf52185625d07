# Sourced by the scripts here, with the root of the repository as working directory: on what is measured, and how it is recorded.
go=${GO:-go}
raw=$(mktemp) # what the benchmarks printed
trap 'rm -f "$raw"' EXIT

cpu=$(awk -F ': *' '/^model name/ { print $2; exit }' /proc/cpuinfo 2>/dev/null || true)
cpu=${cpu:-$(sysctl -n machdep.cpu.brand_string 2>/dev/null || uname -m)}
cores=$(getconf _NPROCESSORS_ONLN)
load=$(uptime | sed 's/.*load averages*: *//')
commit=$(git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)

# bench runs the benchmarks of a pattern in a folder, shows what of their output matters, and keeps it: folder, pattern, further
# arguments for go test.
bench() {
	local folder=$1 pattern=$2
	shift 2
	(cd "$folder" && CGO_ENABLED=0 "$go" test -tags grpcnotrace -run '^$' -bench "$pattern" "$@") |
		grep --line-buffered -E '^(Benchmark|vpp: |--- FAIL|FAIL|panic|    )' | tee -a "$raw"
}

# record writes what it reads and then all that was printed to bench/results/<date>-<cpu>-<cores>[-<suffix>].md, below a title, the
# machine and the versions: suffix, title, what to say behind the versions.
record() {
	local name result
	name=$(echo "$cpu" | tr 'A-Z' 'a-z' | tr -cs 'a-z0-9' '-' | sed 's/^-*//; s/-*$//')
	result=bench/results/$(date +%F)-${name:-cpu}-${cores}${1:+-$1}.md
	mkdir -p bench/results
	{
		echo "# $2"
		echo
		echo "- machine: $cpu, $cores cores, $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo 2>/dev/null), $(uname -sr)"
		echo "- load before (1, 5, 15 minutes): $load"
		echo "- $("$go" version), commit $commit$3"
		cat
		echo
		echo '```'
		cat "$raw"
		echo '```'
	} >"$result"
	echo
	echo "recorded in $result"
}
