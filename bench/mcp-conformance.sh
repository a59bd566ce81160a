#!/usr/bin/env bash
# Runs the official conformance suite of the Model Context Protocol against `crates/etude-tools/examples/mcp-client.rs`:
# what each revision that we speak requires of clients. Needs npm; installs the suite, and the Node that it needs, below
# target/. What is expected to fail, and why, is in mcp-conformance.yaml beside this file.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
version=${MCP_CONFORMANCE_VERSION:-0.2.0-alpha.12}
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/mcp-conformance

mkdir -p "$work"
npm install --silent --prefix "$work" --no-audit --no-fund "@modelcontextprotocol/conformance@$version" node@22
PATH=$work/node_modules/.bin:$PATH
cargo build --quiet -p etude-tools --example mcp-client

status=0
for revision in ${MCP_REVISIONS:-2025-11-25 2026-07-28}; do
    echo "== revision $revision"
    log=$work/$revision.log
    # The client leaves its files in the directory that it runs in.
    (cd "$work" && conformance client --command "$target/debug/examples/mcp-client" --requirements "$revision" \
        --expected-failures "$root/bench/mcp-conformance.yaml" --output-dir "$work/results/$revision") \
        > "$log" 2>&1 || status=1
    sed -n '/SUITE SUMMARY/,$p' "$log"
done
exit $status
