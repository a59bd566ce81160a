//! Numbers, times and foreign text in the form of pages.

use std::borrow::Cow;

pub(super) use etude_core::report::{bytes, number};

use etude_core::hidden::{hides, is_hidden};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};
use serde_json::Value;

/// Placeholder of an absent value.
pub(super) const ABSENT: &str = "–";

/// The text with its first letter in upper case, as a title.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Text of models, steps and definitions, with control and bidi characters made visible.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if !hides(text) {
        return Cow::Borrowed(text);
    }
    let pieces = pieces(text);
    Cow::Owned(pieces.into_iter().map(|(c, stand_in)| stand_in.unwrap_or_else(|| c.to_string())).collect())
}

/// The same as part of a page, from which a script can copy the original text.
pub(super) fn copied(text: &str) -> Markup {
    if !hides(text) {
        return html! { (text) };
    }
    let mut parts: Vec<(String, Option<(char, String)>)> = vec![(String::new(), None)];
    for (c, stand_in) in pieces(text) {
        match (stand_in, parts.last_mut()) {
            (None, Some((plain, None))) => plain.push(c),
            (None, _) => parts.push((c.to_string(), None)),
            (Some(stand_in), _) => parts.push((String::new(), Some((c, stand_in)))),
        }
    }
    html! {
        @for (plain, hidden) in &parts {
            (plain) @if let Some((c, stand_in)) = hidden { span data-code=(u32::from(*c)) { (stand_in) } }
        }
    }
}

/// The characters of a text, with replacements of the hidden ones.
fn pieces(text: &str) -> Vec<(char, Option<String>)> {
    // The line ends of another system need no mark.
    let text = text.replace("\r\n", "\n");
    let stand_in = |(at, c)| match u32::from(c) {
        _ if !is_hidden(&text, at, c) => (c, None),
        code @ 0..0x20 => (c, Some(char::from_u32(0x2400 + code).unwrap_or('\u{fffd}').to_string())),
        0x7f => (c, Some("\u{2421}".to_owned())),
        code => (c, Some(format!("⟨U+{code:04X}⟩"))),
    };
    text.char_indices().map(stand_in).collect()
}

/// A message: text between backticks is code.
pub(super) fn marked(text: &str) -> Markup {
    let text = visible(text);
    let parts: Vec<&str> = text.split('`').collect();
    let is_even = parts.len() % 2 == 1;
    html! {
        @if is_even {
            @for (nth, part) in parts.iter().enumerate() { @if nth % 2 == 1 { code { (part) } } @else { (part) } }
        } @else { (text) }
    }
}

/// The first line of a message as its title, and the rest.
pub(super) fn title(text: &str) -> (&str, &str) {
    let (title, rest) = text.trim().split_once('\n').unwrap_or((text.trim(), ""));
    (title.trim_end(), rest.trim())
}

/// The text of a member; empty if it is absent.
pub(super) fn text<'v>(of: &'v Value, name: &str) -> &'v str {
    of[name].as_str().unwrap_or_default()
}

/// The list of a member; empty if it is absent.
pub(super) fn list_of<'v>(of: &'v Value, name: &str) -> &'v [Value] {
    of[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A duration with two or three significant digits.
pub(super) fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{}.{:02} s", seconds, ms % 1_000 / 10),
        10_000..60_000 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3_600_000..86_400_000 => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The same for a member in milliseconds.
pub(super) fn duration_of(value: &Value) -> String {
    value.as_u64().map_or_else(|| ABSENT.to_owned(), duration)
}

/// The duration of a run. A script counts that of a run at work.
pub(super) fn duration_so_far(run: &Value) -> Markup {
    let active_ms = run["duration_ms"].as_u64().filter(|_| run["status"] == "running");
    html! {
        @match active_ms {
            Some(ms) => { span data-active-ms=(ms) { (duration(ms)) } },
            None => { (duration_of(&run["duration_ms"])) },
        }
    }
}

/// An amount of US dollars.
pub(super) fn money(value: &Value) -> String {
    match value.as_f64() {
        None => ABSENT.to_owned(),
        Some(0.0) => "$0".to_owned(),
        Some(usd) if usd < 0.01 => format!("${usd:.4}"),
        Some(usd) if usd < 1.0 => format!("${usd:.3}"),
        Some(usd) => format!("${usd:.2}"),
    }
}

/// A number of tokens in short form.
pub(super) fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{}.{} k", count / 1_000, count % 1_000 / 100),
        _ => format!("{}.{} M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

/// A noun with its number.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { many })
}

/// A time as milliseconds since 1970.
pub(super) fn instant_ms(at: &Value) -> Option<i64> {
    at.as_str()?.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// The reader's time zone.
#[derive(Debug, Clone)]
pub(super) struct Zone(TimeZone);

impl Default for Zone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl Zone {
    /// The zone that the script of the pages has stored in a cookie; UTC without a script.
    pub(super) fn of_cookie(name: Option<&str>) -> Self {
        // The script has encoded the name as a part of a query.
        let name = name.and_then(|name| {
            let encoded = name.replace('+', "%2B");
            url::form_urlencoded::parse(encoded.as_bytes()).next().map(|(name, _)| name.into_owned())
        });
        name.and_then(|name| TimeZone::get(&name).ok()).map(Self).unwrap_or_default()
    }

    /// The zone of a schedule.
    pub(super) fn of_schedule(name: &str) -> Self {
        if name == "local" { Self(TimeZone::system()) } else { TimeZone::get(name).map(Self).unwrap_or_default() }
    }

    /// The instant of a local time without a zone, as forms send it; RFC 3339 in UTC.
    pub(super) fn instant(&self, local: &str) -> Option<String> {
        let time: jiff::civil::DateTime = local.parse().ok()?;
        time.to_zoned(self.0.clone()).ok().map(|time| time.timestamp().to_string())
    }

    /// A time in a format of `strftime`, with the UTC instant as its title.
    fn time(&self, at: &Value, form: &str) -> Markup {
        let text = at.as_str().unwrap_or_default();
        match text.parse::<Timestamp>() {
            Err(_) => html! { (ABSENT) },
            Ok(instant) => html! {
                time datetime=(text) title=(text) { (instant.to_zoned(self.0.clone()).strftime(form).to_string()) }
            },
        }
    }

    /// The time of day.
    pub(super) fn clock(&self, at: &Value) -> Markup {
        self.time(at, "%H:%M")
    }

    /// Day and time.
    pub(super) fn moment(&self, at: &Value) -> Markup {
        self.time(at, "%-d %b, %H:%M:%S")
    }

    /// Weekday, day and time, with seconds unless the tick is at the start of a minute.
    pub(super) fn tick(&self, at: &Value) -> Markup {
        let is_full = instant_ms(at).is_none_or(|ms| ms % 60_000 < 1_000);
        self.time(at, if is_full { "%a %-d %b, %H:%M" } else { "%a %-d %b, %H:%M:%S" })
    }

    /// The day as a heading, with names for today and yesterday.
    pub(super) fn day(&self, at: &Value, now_ms: i64) -> String {
        let date = |ms: Timestamp| ms.to_zoned(self.0.clone()).date();
        let Some(day) = at.as_str().and_then(|text| text.parse::<Timestamp>().ok()).map(date) else {
            return String::new();
        };
        let today = Timestamp::from_millisecond(now_ms).map(date).unwrap_or(day);
        match today.since(day).map_or(i32::MAX, |span| span.get_days()) {
            0 => format!("Today, {}", day.strftime("%-d %B")),
            1 => format!("Yesterday, {}", day.strftime("%-d %B")),
            _ if today.year() == day.year() => day.strftime("%A, %-d %B").to_string(),
            _ => day.strftime("%A, %-d %B %Y").to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_few_digits() {
        let spans = [38, 999, 8_420, 24_100, 64_000, 3_720_000, 90_000_000].map(duration);
        assert_eq!(spans, ["38 ms", "999 ms", "8.42 s", "24.1 s", "1 min 04 s", "1 h 02 min", "1 d 01 h"]);
        assert_eq!(
            [0.0041, 0.031, 0.412, 12.5].map(|usd| money(&usd.into())),
            ["$0.0041", "$0.031", "$0.412", "$12.50"]
        );
        assert_eq!((money(&Value::Null).as_str(), money(&0.0.into()).as_str()), ("–", "$0"));
        assert_eq!([0, 999, 1_285, 1_000_000].map(number), ["0", "999", "1,285", "1,000,000"]);
        assert_eq!([512, 1_500, 3 << 20, 3 << 30].map(bytes), ["512 B", "1.5 KiB", "3.0 MiB", "3.0 GiB"]);
        assert_eq!([999, 21_700, 1_250_000].map(tokens), ["999", "21.7 k", "1.2 M"]);
    }

    /// S-127: characters that change how other text reads are made visible.
    #[test]
    fn hidden_characters_are_visible() {
        assert_eq!(visible("a\u{202e}b\u{1b}[0m\u{feff}"), "a⟨U+202E⟩b␛[0m⟨U+FEFF⟩");
        assert!(matches!(visible("naïve 日本\n\tx"), Cow::Borrowed(_)));
        assert_eq!(visible("a\u{ad}\u{180e}\u{2028}\u{e0041}"), "a⟨U+00AD⟩⟨U+180E⟩⟨U+2028⟩⟨U+E0041⟩");
        // Joiners that Persian and emoji need stay; between Latin letters they hide something.
        for plain in ["👨\u{200d}👩\u{200d}👧", "می\u{200c}خواهم"] {
            assert_eq!(visible(plain), plain);
        }
        assert_eq!(visible("pass\u{200d}word"), "pass⟨U+200D⟩word");
        let markup = copied("a\u{202e}<b>\u{e0041}").into_string();
        assert_eq!(
            markup,
            "a<span data-code=\"8238\">⟨U+202E⟩</span>&lt;b&gt;<span data-code=\"917569\">⟨U+E0041⟩</span>"
        );
    }

    /// The ticks of a schedule with an interval of seconds differ in their seconds.
    #[test]
    fn ticks_within_a_minute_differ() {
        let shown = |at: &str| Zone::default().tick(&at.into()).into_string();
        assert!(shown("2026-11-22T23:30:00.000Z").contains(">Sun 22 Nov, 23:30<"));
        assert!(shown("2026-11-22T23:30:02.000Z").contains(">Sun 22 Nov, 23:30:02<"));
    }

    #[test]
    fn days_have_names_in_the_readers_zone() {
        let zone = Zone::of_cookie(Some("Europe%2FBerlin"));
        let now = 1_795_392_000_000; // 2026-11-23T00:00:00Z
        assert_eq!(zone.day(&"2026-11-22T23:30:00.000Z".into(), now), "Today, 23 November");
        assert_eq!(zone.day(&"2026-11-22T22:30:00.000Z".into(), now), "Yesterday, 22 November");
        assert_eq!(
            Zone::of_cookie(Some("Nowhere/At_All")).day(&"2026-11-22T23:30:00.000Z".into(), now),
            "Yesterday, 22 November"
        );
        let fixed = Zone::of_cookie(Some("Etc%2FGMT%2B5"));
        assert!(fixed.clock(&"2026-11-22T23:30:00.000Z".into()).into_string().contains(">18:30<"));
        assert!(zone.clock(&"2026-11-22T23:30:00.000Z".into()).into_string().contains(">00:30<"));
    }
}
