//! Build script of the command line: embeds error pages and the version, and sets linker options.
//!
//! The pages of `docs/errors` make `etude explain` work everywhere. The version of a release names its commit. The program's
//! relocations are packed if the system reads packed ones.

#![expect(clippy::disallowed_methods, reason = "a build script has no host")]

use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=ETUDE_OLD_GLIBC");
    if packs_relocations() {
        // 35,000 entries of 24 bytes each are read at every start. Packed they take a fiftieth (ADR 0034). A linker that
        // does not know the option warns and continues.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    order_functions()?;
    println!("cargo::rustc-env=ETUDE_VERSION={}", version()?);
    write_pages()
}

/// The version, with the commit of a release build in a checkout. A development build omits it: otherwise each commit would
/// recompile the crate.
fn version() -> Result<String, Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=ETUDE_COMMIT");
    let version = env::var("CARGO_PKG_VERSION")?;
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let given = env::var("ETUDE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| if is_release { commit() } else { None });
    Ok(commit.map_or_else(|| version.clone(), |commit| format!("{version} ({commit})")))
}

/// The commit and its date, such as `1a2b3c4 2026-01-31`.
fn commit() -> Option<String> {
    let git = |args: &[&str]| -> Option<String> {
        let done = Command::new("git").args(args).output().ok().filter(|done| done.status.success())?;
        Some(String::from_utf8(done.stdout).ok()?.trim().to_owned())
    };
    // A copy of this crate inside another repository has no commit.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let log = PathBuf::from(git(&["rev-parse", "--absolute-git-dir"])?).join("logs/HEAD");
    if log.is_file() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    git(&["log", "-1", "--format=%h %cs"])
}

/// True if the C library of this machine reads packed relocations, as glibc does from 2.36 on; the program then does not start
/// with older ones. Builds for older systems on such a machine need `ETUDE_OLD_GLIBC`.
fn packs_relocations() -> bool {
    const FIRST: (u32, u32) = (2, 36);
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_for_here = env::var("HOST").ok() == env::var("TARGET").ok();
    if env::var_os("ETUDE_OLD_GLIBC").is_some()
        || !is_for_here
        || !is("CARGO_CFG_TARGET_OS", "linux")
        || !is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        return false;
    }
    let Ok(reported) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return false };
    let reported = String::from_utf8_lossy(&reported.stdout);
    let version = reported.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    version
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .is_some_and(|found: (u32, u32)| found >= FIRST)
}

/// Places the functions that short runs execute next to each other, in the distributed program (ADR 0107).
fn order_functions() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // `target/PROFILE/build/PACKAGE/out`: the variable `PROFILE` names only the profile that a profile inherits from.
    let is_dist = out.ancestors().nth(3).and_then(|path| path.file_name()).is_some_and(|name| name == "dist");
    if is_dist && env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        let order = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("order.ld");
        println!("cargo::rerun-if-changed={}", order.display());
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", order.display());
    }
    Ok(())
}

/// Writes the table of all error pages for the program.
fn write_pages() -> Result<(), Box<dyn Error>> {
    let crate_dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let dir = fs::canonicalize(crate_dir.join("../../docs/errors"))?;
    println!("cargo::rerun-if-changed={}", dir.display());
    let mut pages = Vec::new();
    for entry in fs::read_dir(&dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let code = path.file_stem().and_then(|stem| stem.to_str()).ok_or("a page's name is not UTF-8")?.to_owned();
        let text = fs::read_to_string(&path)?;
        if !text.starts_with(&format!("# {code}: ")) {
            return Err(format!("{} does not begin with `# {code}: `", path.display()).into());
        }
        println!("cargo::rerun-if-changed={}", path.display());
        pages.push((code, path));
    }
    pages.sort();
    let mut table = String::from("/// Every page: its code and its text, in the order of the codes.\n");
    table.push_str("pub(super) static PAGES: &[(&str, &str)] = &[\n");
    for (code, path) in &pages {
        writeln!(table, "    ({code:?}, include_str!({:?})),", path.to_str().ok_or("a path is not UTF-8")?)?;
    }
    table.push_str("];\n");
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("pages.rs"), table)?;
    Ok(())
}
