#!/bin/bash
# Compares the integer conversions that gosec remarks on (G115) with those that were read: tools/gosec/g115.txt. It fails if there is a new one, or
# one less. UPDATE=1 adds new ones with the reason "unread", which fails until somebody has written a reason.
set -euo pipefail
cd "$(dirname "$0")/../.."
GO=${GO:-go} list=tools/gosec/g115.txt dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
(cd tools/gosec && $GO build -o "$dir/conversions" ./conversions)
# Package by package: the whole tree at a time takes ten times as long. The simulated VPP and the tests are no part of the agent.
$GO list ./... | sed "s,^$($GO list -m),.," | grep -vE '^\./(sim|test|proto)(/|$)' | xargs -P 2 -I{} "$dir/conversions" {} | LC_ALL=C sort -u >"$dir/found"
grep -v '^#' "$list" | cut -f1-3 | LC_ALL=C sort -u >"$dir/known" || true
new=$(comm -23 "$dir/found" "$dir/known") gone=$(comm -13 "$dir/found" "$dir/known")
[ -z "$new" ] || echo "integer conversions that nobody has read:"$'\n'"$new"
[ -z "$gone" ] || echo "no longer in the tree, to be removed from $list:"$'\n'"$gone"
if [ -n "${UPDATE:-}" ]; then
  [ -z "$new" ] || sed 's/$/\tunread/' <<<"$new" >>"$list"
fi
[ -z "$new$gone" ] || exit 1
! grep -nP '\tunread$' "$list"
