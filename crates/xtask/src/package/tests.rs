//! Tests with packages of a small program that responds like `etude`.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// A directory with a program that prints the version of the workspace, a manual and completions.
struct Shop {
    directory: tempfile::TempDir,
    version: String,
}

impl Shop {
    fn new() -> Self {
        let version = Release::of_repository(&crate::tree::root()).unwrap().version;
        let shop = Self { directory: tempfile::tempdir().unwrap(), version };
        shop.write_program(&shop.version);
        shop
    }

    fn write_program(&self, version: &str) {
        let script = format!("#!/bin/sh\ncase $1 in --version) echo etude {version};; *) echo \"$@\";; esac\n");
        let path = self.directory.path().join("etude");
        fs::write(&path, format!("{script}# \0GLIBC_2.31\0\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn options(&self, out: &str, kinds: &[&str]) -> Options {
        let words = ["--target", TRIPLE];
        let parsed = Options::parse(&[&words, kinds].concat()).unwrap();
        Options { binary: Some(self.directory.path().join("etude")), out: self.out(out), ..parsed }
    }

    fn out(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Builds packages and returns their bytes by name.
    fn make(&self, out: &str, kinds: &[&str]) -> BTreeMap<String, Vec<u8>> {
        make(&self.options(out, kinds)).unwrap();
        let read = |name: String| (name.clone(), fs::read(self.out(out).join(name)).unwrap());
        files(&self.out(out)).unwrap().into_iter().map(read).collect()
    }
}

/// Files of a compressed tar archive: path, permissions, contents.
fn untar(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).unwrap();
        (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap(), contents)
    };
    archive.entries().unwrap().map(read).collect()
}

fn text_of<'f>(files: &'f [(String, u32, Vec<u8>)], path: &str) -> &'f str {
    let (_, _, bytes) = files.iter().find(|(found, _, _)| found == path).unwrap_or_else(|| panic!("no `{path}`"));
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn equal_inputs_give_equal_bytes() {
    let shop = Shop::new();
    let first = shop.make("first", &[]);
    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    let v = &shop.version;
    assert_eq!(
        names,
        [
            "SHA256SUMS",
            &format!("etude-{v}-py3-none-manylinux_2_31_x86_64.whl"),
            &format!("etude-{v}-{TRIPLE}.tar.gz"),
            &format!("etude-{v}.tgz"),
            &format!("etude-dev-linux-x64-{v}.tgz"),
            "etude.rb",
            &format!("etude_{v}_amd64.deb"),
        ]
    );
    assert!(first == shop.make("second", &[]));
}

#[test]
fn checksums_cover_every_file() {
    let packages = Shop::new().make("out", &["tarball", "deb"]);
    let sums = std::str::from_utf8(&packages[CHECKSUMS]).unwrap();
    let expected: String = packages
        .iter()
        .filter(|(name, _)| *name != CHECKSUMS)
        .map(|(name, bytes)| format!("{}  {name}\n", sha256(bytes)))
        .collect();
    assert_eq!(sums, expected);
}

#[test]
fn the_tarball_has_one_directory_with_manual_and_completions() {
    let shop = Shop::new();
    let stem = format!("etude-{}-{TRIPLE}", shop.version);
    let files = untar(&shop.make("out", &["tarball"])[&format!("{stem}.tar.gz")]);
    let paths: Vec<&str> = files.iter().map(|(path, ..)| path.strip_prefix(&stem).unwrap()).collect();
    assert_eq!(
        paths,
        [
            "/",
            "/etude",
            "/README.md",
            "/CHANGELOG.md",
            "/LICENSE-APACHE",
            "/LICENSE-MIT",
            "/man/",
            "/man/etude.1",
            "/completions/",
            "/completions/etude.bash",
            "/completions/_etude",
            "/completions/etude.fish",
        ]
    );
    assert_eq!(files[1].1, 0o755);
    assert_eq!(text_of(&files, &format!("{stem}/completions/_etude")), "completions zsh\n");
}

#[test]
fn binstall_finds_the_tarball_and_the_program_in_it() {
    let shop = Shop::new();
    let manifest = fs::read_to_string(crate::tree::root().join("crates/etude-cli/Cargo.toml")).unwrap();
    let value = |key: &str| {
        let line = manifest.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = ")).unwrap();
        line.trim_matches('"').replace("{ version }", &shop.version).replace("{ target }", TRIPLE)
    };
    let name = format!("etude-{}-{TRIPLE}.tar.gz", shop.version);
    let release = Release::of_repository(&crate::tree::root()).unwrap();
    assert_eq!(value("pkg-url").replace("{ repo }", &release.repository), release.download(&name));
    assert_eq!(value("pkg-fmt"), "tgz");
    let files = untar(&shop.make("out", &["tarball"])[&name]);
    assert!(text_of(&files, &value("bin-dir").replace("{ bin }", "etude")).starts_with("#!/bin/sh"));
}

#[test]
fn the_wheel_lists_every_file_with_its_hash() {
    let shop = Shop::new();
    let packages = shop.make("out", &["wheel"]);
    let bytes = packages.values().find(|bytes| bytes.starts_with(b"PK")).unwrap();
    let mut wheel = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let info = format!("etude-{}.dist-info", shop.version);
    let mut read = |name: &str| {
        let mut text = String::new();
        wheel.by_name(name).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    assert!(read(&format!("{info}/WHEEL")).ends_with("Tag: py3-none-manylinux_2_31_x86_64\n"));
    assert!(read(&format!("{info}/METADATA")).starts_with("Metadata-Version: 2.4\nName: etude\nVersion: "));
    let record = read(&format!("{info}/RECORD"));
    let listed: Vec<&str> = record.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(listed, wheel.file_names().map(|name| name.unwrap().into_owned()).collect::<Vec<_>>());
    let program = wheel.by_name(&format!("etude-{}.data/scripts/etude", shop.version)).unwrap();
    assert_eq!(program.unix_mode().unwrap() & 0o777, 0o755);
}

#[test]
fn npm_picks_the_program_of_the_platform() {
    let shop = Shop::new();
    let packages = shop.make("out", &["npm"]);
    let manifest = |name: &str| -> serde_json::Value {
        let files = untar(&packages[&format!("{name}-{}.tgz", shop.version)]);
        serde_json::from_str(text_of(&files, "package/package.json")).unwrap()
    };
    let platform = manifest("etude-dev-linux-x64");
    assert_eq!(
        (&platform["os"], &platform["cpu"], &platform["libc"]),
        (&serde_json::json!(["linux"]), &serde_json::json!(["x64"]), &serde_json::json!(["glibc"]))
    );
    let launcher = manifest("etude");
    assert_eq!(launcher["optionalDependencies"][platform["name"].as_str().unwrap()], shop.version);
    let script = launcher["bin"]["etude"].as_str().unwrap();
    let files = untar(&packages[&format!("etude-{}.tgz", shop.version)]);
    assert!(text_of(&files, &format!("package/{script}")).starts_with("#!/usr/bin/env node\n"));
}

#[test]
fn the_debian_package_depends_on_the_c_library_of_the_program() {
    let shop = Shop::new();
    let packages = shop.make("out", &["deb"]);
    let deb = &packages[&format!("etude_{}_amd64.deb", shop.version)];
    assert!(deb.starts_with(b"!<arch>\ndebian-binary   "));
    let second = 8 + 60 + 4;
    let length: usize = std::str::from_utf8(&deb[second + 48..second + 58]).unwrap().trim().parse().unwrap();
    let files = untar(&deb[second + 60..second + 60 + length]);
    let control = text_of(&files, "control");
    assert!(control.contains("\nDepends: libc6 (>= 2.31), libgcc-s1\n"), "{control}");
    assert!(control.contains(&format!("\nVersion: {}\n", shop.version)));
}

#[test]
fn a_formula_needs_tarballs_and_has_their_checksums() {
    let shop = Shop::new();
    let error = make(&shop.options("out", &["formula"])).unwrap_err().to_string();
    assert!(error.contains("has no archive of version"), "{error}");
    let packages = shop.make("out", &["tarball", "formula"]);
    let formula = std::str::from_utf8(&packages["etude.rb"]).unwrap();
    let (name, tarball) = packages.iter().find(|(name, _)| name.ends_with(".tar.gz")).unwrap();
    assert!(formula.contains(&format!("/{name}\"\n      sha256 \"{}\"\n", sha256(tarball))), "{formula}");
    assert!(!formula.contains("on_macos"), "there is no tarball for it");
}

#[test]
fn a_program_of_another_version_is_refused() {
    let shop = Shop::new();
    shop.write_program("99.0.0");
    let error = make(&shop.options("out", &["tarball"])).unwrap_err();
    assert!(matches!(error, Error::Stale { ref found, .. } if found == "etude 99.0.0"), "{error}");
}

#[test]
fn a_program_that_needs_a_c_library_is_refused_for_musl() {
    let shop = Shop::new();
    let of_musl = |binary: PathBuf| {
        let options = shop.options("out", &["tarball", "wheel", "npm"]);
        make(&Options { binary: Some(binary), target: "x86_64-unknown-linux-musl".to_owned(), ..options })
    };
    let names: Vec<String> = of_musl(shop.directory.path().join("etude")).unwrap();
    assert!(names.iter().any(|name| name.ends_with("-musllinux_1_2_x86_64.whl")), "{names:?}");

    if cfg!(all(target_os = "linux", target_env = "gnu")) {
        let error = of_musl(std::env::current_exe().unwrap()).unwrap_err().to_string();
        assert!(error.contains("packages for `x86_64-unknown-linux-musl` need a static program"), "{error}");
    }
}
