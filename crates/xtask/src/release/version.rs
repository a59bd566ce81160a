//! Version numbers and their order.

use std::cmp::Ordering;

use super::Error;

/// A version with at most one pre-release label: `1.2.0`, `1.2.0-rc.1`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Version {
    numbers: [u64; 3],
    /// Word and number of a pre-release.
    label: Option<(String, u64)>,
}

impl Version {
    /// Parses a version.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let read = || {
            let (base, label) = text.split_once('-').map_or((text, None), |(base, label)| (base, Some(label)));
            let numbers: Vec<u64> = base.split('.').map(number).collect::<Option<_>>()?;
            let label = match label {
                None => None,
                Some(label) => {
                    let (word, count) = label.split_once('.')?;
                    ["alpha", "beta", "rc"].contains(&word).then_some(())?;
                    Some((word.to_owned(), number(count)?))
                }
            };
            Some(Self { numbers: numbers.try_into().ok()?, label })
        };
        read().ok_or_else(|| Error::Version(text.to_owned()))
    }
}

/// Parses a number without a sign or leading zeros.
fn number(text: &str) -> Option<u64> {
    let is_canonical = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_canonical)
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let label = match (&self.label, &other.label) {
            (None, None) => Ordering::Equal,
            // A pre-release precedes its release.
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(own), Some(theirs)) => own.cmp(theirs),
        };
        Some(self.numbers.cmp(&other.numbers).then(label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_they_are_released() {
        let order = ["0.1.0", "0.2.0-alpha.2", "0.2.0-alpha.10", "0.2.0-rc.1", "0.2.0", "0.10.0"];
        let versions = order.map(|text| Version::parse(text).unwrap());
        assert!(versions.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn other_forms_are_refused() {
        for text in
            ["1", "1.2", "1.2.3.4", "v1.2.3", "1.2.03", "1.2.3-rc", "1.2.3-nightly.1", "1.2.3+build", "+1.2.3", ""]
        {
            assert!(Version::parse(text).is_err(), "{text}");
        }
    }
}
