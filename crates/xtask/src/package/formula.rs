//! Formula for Homebrew, with the checksums of the tarballs beside it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::archive::sha256;
use super::release::{Release, SUMMARY};
use super::target::{TARGETS, Target};
use super::{Error, Package};

/// Builds the formula for all tarballs of a directory.
///
/// # Errors
/// The directory has no tarball of this version that Homebrew could use.
pub(super) fn formula(release: &Release, out: &Path) -> Result<Package, Error> {
    let mut blocks = String::new();
    for system in ["on_macos", "on_linux"] {
        let mut inner = String::new();
        for (target, processor) in targets(system) {
            let name = format!("{}.tar.gz", release.stem(target));
            let path = out.join(&name);
            if path.is_file() {
                let sum = sha256(&fs::read(&path).map_err(Error::at(&path))?);
                let url = release.download(&name);
                let _ = write!(inner, "    {processor} do\n      url \"{url}\"\n      sha256 \"{sum}\"\n    end\n");
            }
        }
        if !inner.is_empty() {
            let _ = write!(blocks, "\n  {system} do\n{inner}  end\n");
        }
    }
    if blocks.is_empty() {
        return Err(Error::NoTarballs { out: out.to_owned(), version: release.version.clone() });
    }
    let licences: Vec<String> = release.licence.split(" OR ").map(|licence| format!("\"{licence}\"")).collect();
    let text = format!(
        "class Etude < Formula\n  \
           desc \"{SUMMARY}\"\n  \
           homepage \"{}\"\n  \
           version \"{}\"\n  \
           license any_of: [{}]\n\
         {blocks}{REST}",
        release.repository,
        release.version,
        licences.join(", "),
    );
    Ok(Package { name: "etude.rb".to_owned(), bytes: text.into_bytes() })
}

/// Platforms of a system, with the name of their block.
fn targets(system: &str) -> impl Iterator<Item = (&'static Target, &'static str)> {
    TARGETS.iter().filter_map(move |target| Some((target, target.brew.filter(|(of, _)| *of == system)?.1)))
}

const REST: &str = r##"
  def install
    bin.install "etude"
    man1.install "man/etude.1"
    bash_completion.install "completions/etude.bash" => "etude"
    zsh_completion.install "completions/_etude"
    fish_completion.install "completions/etude.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/etude --version")
  end
end
"##;
