//! Command line of `package`.

use std::path::PathBuf;

use super::Error;
use super::target;

/// Usage text.
pub(super) const USAGE: &str =
    "usage: cargo run -p xtask -- package [--binary PATH] [--target TRIPLE] [--out DIR] [KIND…]

  --binary PATH    package this program instead of building one with the profile `dist`
  --target TRIPLE  the platform of the program; default: this machine's
  --out DIR        default: target/packages
  KIND             tarball, deb, wheel, npm, formula; default: all";

/// A form of distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Tarball,
    Deb,
    Wheel,
    Npm,
    Formula,
}

const KINDS: [(&str, Kind); 5] = [
    ("tarball", Kind::Tarball),
    ("deb", Kind::Deb),
    ("wheel", Kind::Wheel),
    ("npm", Kind::Npm),
    ("formula", Kind::Formula),
];

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Path of the program to package; `None` builds it.
    pub(super) binary: Option<PathBuf>,
    /// The target triple.
    pub(super) target: String,
    /// Output directory.
    pub(super) out: PathBuf,
    /// Kinds to build, in the order of [`KINDS`].
    pub(super) kinds: Vec<Kind>,
}

impl Options {
    /// Parses the words after `package`.
    pub(super) fn parse(words: &[&str]) -> Result<Self, Error> {
        let (mut binary, mut target, mut out, mut asked) = (None, None, None, Vec::new());
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let place = match *word {
                "--binary" => &mut binary,
                "--target" => &mut target,
                "--out" => &mut out,
                word => {
                    let kind = KINDS.iter().find(|(name, _)| *name == word);
                    asked.push(kind.ok_or_else(|| Error::Usage(format!("`{word}` is no kind of package")))?.1);
                    continue;
                }
            };
            *place = Some((*rest.next().ok_or_else(|| Error::Usage(format!("`{word}` needs a value")))?).to_owned());
        }
        let is_asked = |kind: &Kind| asked.is_empty() || asked.contains(kind);
        Ok(Self {
            binary: binary.map(PathBuf::from),
            target: target.map_or_else(target::of_this_machine, Ok)?,
            out: out.map_or_else(|| crate::tree::root().join("target/packages"), PathBuf::from),
            kinds: KINDS.iter().map(|(_, kind)| *kind).filter(is_asked).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_in_the_order_in_which_they_depend_on_each_other() {
        let options = Options::parse(&["formula", "--target", "t", "tarball", "--binary", "b", "--out", "o"]).unwrap();
        assert_eq!(options.kinds, [Kind::Tarball, Kind::Formula]);
        assert_eq!(options.target, "t");
        assert_eq!((options.binary, options.out), (Some(PathBuf::from("b")), PathBuf::from("o")));
        assert_eq!(Options::parse(&["--target", "t"]).unwrap().kinds.len(), KINDS.len());
    }

    #[test]
    fn unknown_kinds_and_missing_values_are_usage_errors() {
        for (words, expected) in [(&["rpm"][..], "`rpm` is no kind of package"), (&["--out"], "`--out` needs a value")]
        {
            assert_eq!(Options::parse(words).unwrap_err().to_string(), expected);
        }
    }
}
