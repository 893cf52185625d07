#!/bin/bash
# Compares the integer conversions that gosec remarks on (G115) with those that were read: tools/gosec/g115.txt. It fails if there is a new one, or
# one less. UPDATE=1 adds new ones with the reason "unread", which fails until somebody has written a reason.
set -euo pipefail
cd "$(dirname "$0")/../.."
GO=${GO:-go} list=tools/gosec/g115.txt dir=$(mktemp -d)
command -v jq >/dev/null || apt-get install -y -qq jq >/dev/null 2>&1 || { echo "$0 needs jq" >&2; exit 1; }
trap 'rm -rf "$dir"' EXIT
$GO build -modfile=tools/gosec/go.mod -o "$dir/gosec" github.com/securego/gosec/v2/cmd/gosec
# Package by package: gosec of the whole tree takes ten times as long. The simulated VPP and the tests are no part of the agent.
$GO list ./... | sed "s,^$($GO list -m),.," | grep -vE '^\./(sim|test|proto)(/|$)' |
  xargs -P 2 -I{} sh -c '"$0/gosec" -quiet -exclude-generated -include=G115 -fmt=json -out="$0/$(echo {} | tr / _).json" {} >/dev/null 2>&1; test $? -le 1' "$dir"
cat "$dir"/.*.json 2>/dev/null | jq -r --arg root "$PWD/" '.Issues[]? | [(.file | ltrimstr($root)), (.line | split("-")[0] + ": ") as $n |
  (.code | split("\n")[] | select(startswith($n)) | ltrimstr($n) | gsub("^\\s+"; "")), (.details | ltrimstr("integer overflow conversion "))] | join("\t")' | LC_ALL=C sort -u >"$dir/found"
grep -v '^#' "$list" | cut -f1-3 | LC_ALL=C sort -u >"$dir/known" || true
new=$(comm -23 "$dir/found" "$dir/known") gone=$(comm -13 "$dir/found" "$dir/known")
[ -z "$new" ] || echo "integer conversions that nobody has read:"$'\n'"$new"
[ -z "$gone" ] || echo "no longer in the tree, to be removed from $list:"$'\n'"$gone"
if [ -n "${UPDATE:-}" ]; then
  [ -z "$new" ] || sed 's/$/\tunread/' <<<"$new" >>"$list"
fi
[ -z "$new$gone" ] || exit 1
! grep -nP '\tunread$' "$list"
