//! The contract's own test suite, on this engine.

use etude_runtime::conformance;
use etude_runtime::engine::Engine;
use etude_sqlite::Sync;

fn check(sync: Sync) {
    let dir = tempfile::tempdir().expect("a directory");
    let next = std::sync::atomic::AtomicU32::new(0);
    conformance::all(&|| {
        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let engine: Box<dyn Engine> = Box::new(crate::open(&dir.path().join(number.to_string()), sync));
        engine
    });
}

/// S-46, S-48, S-50, S-76, S-93: this engine passes the whole suite of the contract.
#[test]
fn the_contract_is_kept_in_normal_mode() {
    check(Sync::Normal);
}

#[test]
fn the_contract_is_kept_in_strict_mode() {
    check(Sync::Strict);
}
