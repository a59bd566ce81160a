//! Headers that a proxy in front of the server adds to the requests that it passes on.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

use crate::settings::Settings;

/// The elements of a list in a header, which may occur several times.
fn elements<'h>(headers: &'h HeaderMap, name: &'static str) -> impl DoubleEndedIterator<Item = &'h str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().into_iter().flat_map(|value| value.split(',')).map(str::trim)
}

/// The address of the client: the last element, which the proxy itself has seen. The elements before it are claims of the client.
pub(crate) fn client(settings: &Settings, headers: &HeaderMap) -> Option<IpAddr> {
    let last = elements(headers, "x-forwarded-for").next_back().filter(|_| settings.is_behind_proxy)?;
    last.parse().ok().or_else(|| last.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// The scheme of the client's connection. With several proxies, the first element has it.
pub(crate) fn scheme<'h>(settings: &Settings, headers: &'h HeaderMap) -> Option<&'h str> {
    elements(headers, "x-forwarded-proto").next().filter(|_| settings.is_behind_proxy)
}

/// True if the client's connection is encrypted.
pub(crate) fn is_https(settings: &Settings, headers: &HeaderMap) -> bool {
    scheme(settings, headers).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http::HeaderValue;

    use super::*;

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        values
            .iter()
            .map(|value| (name.parse().expect("a name"), HeaderValue::from_str(value).expect("text")))
            .collect()
    }

    fn settings(is_behind_proxy: bool) -> Settings {
        Settings { is_behind_proxy, ..Settings::new(Path::new("none"), Vec::new()) }
    }

    /// S-22: the address is the one that the proxy has seen, in each of its forms.
    #[test]
    fn the_last_forwarded_address_is_the_clients() {
        let found = |values: &[&str]| {
            let headers = headers("x-forwarded-for", values);
            assert_eq!(client(&settings(false), &headers), None, "{values:?}");
            client(&settings(true), &headers).map(|address| address.to_string()).unwrap_or_default()
        };
        assert_eq!(found(&["9.9.9.9"]), "9.9.9.9");
        assert_eq!(found(&["1.1.1.1, 9.9.9.9:443"]), "9.9.9.9");
        assert_eq!(found(&["1.1.1.1", "unknown, 2001:db8::1"]), "2001:db8::1");
        assert_eq!(found(&["[2001:db8::1]:443"]), "2001:db8::1");
        for unusable in [&[][..], &[""], &["9.9.9.9, unknown"], &["_hidden"]] {
            assert_eq!(found(unusable), "", "{unusable:?}");
        }
    }

    /// S-21: the scheme is that of the client.
    #[test]
    fn the_first_forwarded_scheme_is_the_clients() {
        let is = |values: &[&str], is_behind_proxy| {
            is_https(&settings(is_behind_proxy), &headers("x-forwarded-proto", values))
        };
        for values in [&["https"][..], &["HTTPS, http"], &["https", "http"]] {
            assert_eq!((is(values, true), is(values, false)), (true, false), "{values:?}");
        }
        for values in [&[][..], &["http"], &["http, https"], &["wss"]] {
            assert!(!is(values, true), "{values:?}");
        }
    }
}
