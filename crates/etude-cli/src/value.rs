//! Parsers for the values of flags.

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use etude_spec::duration;

/// Parser of a whole number in a range; its error names the range.
pub(crate) fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Milliseconds of `500ms`, `2s`, `5m`, `1h`, or a bare number of seconds.
pub(crate) fn duration_ms(text: &str) -> Result<u64, String> {
    duration::parse(text)
        .map_err(|why| format!("{why}; a duration is `500ms`, `2s`, `5m` or `1h`; a bare number is seconds"))
}

/// Parses a TCP address, or a port of this machine.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").unwrap_or(text).parse::<u16>();
    let here = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    here.or_else(|_| text.parse()).map_err(|_| {
        "an address is a port, such as `8080`, or an IP address with a port, such as `127.0.0.1:8080`".into()
    })
}

/// Listening address of a server.
#[cfg(feature = "serve")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Address(SocketAddr),
    /// A file descriptor that this process inherited.
    Descriptor(u32),
}

/// Parses an IP address with a port, or `fd:N`.
#[cfg(feature = "serve")]
pub(crate) fn place(text: &str) -> Result<Place, String> {
    let given = match text.strip_prefix("fd:") {
        Some(at) => at.parse().ok().filter(|at| *at >= 3).map(Place::Descriptor),
        None => text.parse().ok().map(Place::Address),
    };
    given.ok_or_else(|| {
        "it is an IP address with a port, such as `127.0.0.1:8080`, or the socket of a service manager, such as `fd:3`".into()
    })
}

/// Parses an RFC 3339 time, in milliseconds since 1970.
pub(crate) fn time_ms(text: &str) -> Result<i64, String> {
    etude_runtime::clock::from_rfc3339(text)
        .ok_or_else(|| "a time is RFC 3339, such as `2026-01-31T08:00:00Z`".to_owned())
}

/// Parses the name of a tenant: 1 to 63 bytes without control characters.
#[cfg(feature = "postgres")]
pub(crate) fn tenant(text: &str) -> Result<String, String> {
    let is_name = (1..=63).contains(&text.len()) && !text.chars().any(char::is_control);
    is_name.then(|| text.to_owned()).ok_or_else(|| "a tenant has 1 to 63 bytes without control characters".to_owned())
}

/// Maximum length of keys and labels, in bytes. They are in database indexes, whose rows are short.
#[cfg(feature = "postgres")]
const MAX_NAME: usize = 512;

/// Parses an idempotency key. An empty one, as of a variable that is not set, would be the key of unrelated runs.
#[cfg(feature = "postgres")]
pub(crate) fn key(text: &str) -> Result<String, String> {
    match (1..=MAX_NAME).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err(format!("a key has 1 to {MAX_NAME} bytes; this one has {}", text.len())),
    }
}

/// Checks a label of a run, as typed.
#[cfg(feature = "postgres")]
pub(crate) fn label(text: &str) -> Result<String, String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    match key.len() <= MAX_NAME && value.len() <= MAX_NAME {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "the key of a label and its value have at most {MAX_NAME} bytes each; these have {} and {}",
            key.len(),
            value.len()
        )),
    }
}

/// Parses a tier by its word.
pub(crate) fn tier(text: &str) -> Result<etude_core::model::Tier, String> {
    etude_core::model::Tier::from_word(text)
        .ok_or_else(|| "the tiers are `lite`, `standard` and `reasoning`".to_owned())
}

/// Parses like [`duration_ms`], with days and weeks.
pub(crate) fn long_duration_ms(text: &str) -> Result<u64, String> {
    duration::parse_long(text)
        .map_err(|why| format!("{why}; a duration is `30m`, `12h`, `30d` or `8w`; a bare number is seconds"))
}

/// Parses an amount of US dollars: finite and not negative, because NaN would not limit anything.
pub(crate) fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| "an amount in US dollars is a number from 0 on, such as `2.50`".to_owned())
}

/// Parses a number of bytes: `1024`, `512KiB`, `8MiB` or `1GiB`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let bytes = etude_spec::config::fleet::size(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| "a size is a number of bytes, `512KiB`, `8MiB` or `1GiB`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer ones do not fit into an index of the database. An empty key names no run.
    #[cfg(feature = "postgres")]
    #[test]
    fn keys_and_labels_are_short() {
        let text = |len: usize| "k".repeat(len);
        assert_eq!(key(&text(512)), Ok(text(512)));
        assert_eq!(key(&text(513)), Err("a key has 1 to 512 bytes; this one has 513".to_owned()));
        assert_eq!(key(""), Err("a key has 1 to 512 bytes; this one has 0".to_owned()));
        let longest = format!("{0}={0}", text(512));
        assert_eq!(label(&longest), Ok(longest.clone()));
        for long in [format!("{longest}v"), format!("k{longest}")] {
            assert!(label(&long).is_err_and(|why| why.contains("at most 512 bytes each")), "{long}");
        }
    }

    #[test]
    fn a_whole_number_is_in_its_range() {
        let limit = whole(1..=1000_u32);
        assert_eq!((limit("1"), limit("1000")), (Ok(1), Ok(1000)));
        for text in ["0", "1001", "x", "1.5", "-1", "", "99999999999999999999"] {
            assert_eq!(limit(text), Err("expected a whole number from 1 to 1000".to_owned()), "{text}");
        }
    }

    #[test]
    fn an_amount_of_money_is_a_number_from_0_on() {
        assert_eq!((dollars("0"), dollars("2.50")), (Ok(0.0), Ok(2.5)));
        for text in ["nan", "inf", "1e999", "-0.01", "", "2,50"] {
            assert!(dollars(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_may_be_a_port_of_this_machine() {
        for (text, expected) in [
            ("8080", "127.0.0.1:8080"),
            ("localhost:0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(address(text), Ok(expected.parse().expect("an address")), "{text}");
        }
        for text in ["", "example.com:80", "99999", "127.0.0.1"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    /// C-0.4: sizes are bytes, or have a unit.
    #[test]
    fn sizes_have_units_or_are_bytes() {
        assert_eq!(size("1024"), Ok(1024));
        assert_eq!(size("8MiB"), Ok(8 << 20));
        for text in ["", "8MB", "-1", "MiB", "99999999999999GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
