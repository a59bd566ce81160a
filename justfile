# Shortcuts for the commands of CONTRIBUTING.md; just is optional. `just` lists them.
set positional-arguments

_list:
    @just --list --unsorted

# the binary, for development
build:
    cargo build

# the binary that is released
dist:
    cargo build --profile dist -p etude-cli

# all tests
test:
    cargo test --workspace

# tests whose path contains NAME
test-one NAME:
    cargo test --workspace "$1"

# tests of one crate
test-crate CRATE:
    cargo test -p "$1"

# all tests as CI runs them, with a JUnit report
test-ci:
    cargo nextest run --workspace --profile ci
    cargo test --doc --workspace

# acceptance tests of the binary
acceptance:
    cargo build
    ETUDE_BIN=target/debug/etude python3 -B -m unittest discover -s acceptance -p 'test_[abcls]_*.py'

# clippy, warnings are errors
lint:
    cargo clippy --workspace --all-targets -- -D warnings

# format all sources
fmt:
    cargo fmt --all

# laws, sizes, documents, links
laws:
    cargo test -p xtask

# spelling
spelling:
    typos

# licences, advisories, banned crates
deny:
    cargo deny check

# everything that a change must pass
ci:
    .ci/run

# API documentation
docs:
    cargo doc --workspace --no-deps

# update expected logs of machine tests
snapshots:
    UPDATE_EXPECT=1 cargo test -p etude-core --lib machine

# update expected diagnostics and plans of definition tests
diagnostics:
    UPDATE=1 cargo test -p etude-spec

# update the field tables in docs/
fields:
    UPDATE=1 cargo test -p etude-spec reference

# update the table of clauses and tests
clauses:
    cargo run -p xtask -- clauses

# packages of a release
package *ARGS:
    cargo run -p xtask -- package "$@"

# write a version into the tree
release VERSION:
    cargo run -p xtask -- release "$1"

# mutations of the fuzz corpus, more than the tests make
fuzz:
    PROPTEST_CASES=1000 cargo test --workspace --test mutations

# one fuzz target, guided by coverage; needs nightly Rust and cargo-fuzz
fuzz-guided TARGET:
    mkdir -p "fuzz/corpus/$1"
    cargo +nightly fuzz run "$1" "fuzz/corpus/$1" "crates/etude-fuzz/corpus/$1"

# speed and size against baselines, peers and budgets
bench *ARGS:
    bench/run "$@"
