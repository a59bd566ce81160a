//! Puts the pages of `docs/errors` into the program, so that `etude explain` works everywhere.

use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
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
