#!/bin/sh
# gen.sh regenerates the Go code below proto/ from its .proto files.
# It needs nothing but the Go tool chain: buf and protoc-gen-go are pinned in
# tools/go.mod, and no remote plugin or module is used, so with a filled module
# cache it works offline.
set -eu
cd "$(dirname "$0")/.."
go tool -modfile=tools/go.mod buf lint
go tool -modfile=tools/go.mod buf generate
