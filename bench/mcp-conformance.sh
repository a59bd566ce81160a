#!/usr/bin/env bash
# Runs the official conformance suite of the Model Context Protocol against `crates/etude-tools/examples/mcp-client.rs`,
# once for each revision that we speak. Needs npm; installs the suite, and the Node that it needs, below target/.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
version=${MCP_CONFORMANCE_VERSION:-0.2.0-alpha.12}
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/mcp-conformance

npm install --silent --prefix "$work" --no-audit --no-fund "@modelcontextprotocol/conformance@$version" node@22
PATH=$work/node_modules/.bin:$PATH
cargo build --quiet -p etude-tools --example mcp-client

status=0
for revision in ${MCP_REVISIONS:-2025-11-25 2026-07-28}; do
    echo "== revision $revision"
    # Relative paths of the client are then below target/, too.
    (cd "$work" && conformance client --command "$target/debug/examples/mcp-client" --suite "${MCP_SUITE:-core}" \
        --spec-version "$revision" --expected-failures "$root/bench/mcp-conformance.yaml" \
        --output-dir "$work/results/$revision") || status=1
done
exit $status
