//! The text formats of metrics: Prometheus and OpenMetrics.

use std::fmt::{Error, Write};

/// The upper bounds of a histogram's buckets, in seconds: from a write to a run of an hour.
const BOUNDS: [f64; 13] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1_800.0, 3_600.0];

/// A histogram of durations.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    /// The number of durations up to each bound and above the previous one.
    counts: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    /// Counts a time in seconds.
    pub(super) fn observe(&mut self, seconds: f64) {
        if let Some(nth) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.counts[nth] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// The number of durations.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }
}

etude_core::words! {
    /// The kind of a family.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Kind {
        Gauge = "gauge",
        Counter = "counter",
        Histogram = "histogram",
    }
}

/// Families and their samples as text.
#[derive(Debug)]
pub(crate) struct Text {
    out: String,
    /// True for OpenMetrics, false for the older format of Prometheus.
    is_open: bool,
    /// The name of the current family.
    name: String,
    ending: &'static str,
}

impl Text {
    pub(crate) const fn new(is_open: bool) -> Self {
        Self { out: String::new(), is_open, name: String::new(), ending: "" }
    }

    /// Begins a family. The name of a counter is without `_total`: in OpenMetrics only its samples have the suffix.
    pub(crate) fn family(&mut self, name: &str, kind: Kind, help: &str) -> Result<(), Error> {
        name.clone_into(&mut self.name);
        self.ending = if kind == Kind::Counter { "_total" } else { "" };
        let family = if self.is_open { name.to_owned() } else { format!("{name}{}", self.ending) };
        writeln!(self.out, "# HELP {family} {help}\n# TYPE {family} {}", kind.word())
    }

    /// Writes a sample of the current family.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: f64) -> Result<(), Error> {
        self.part(self.ending, labels, value)
    }

    /// Writes a sample whose name has a suffix.
    fn part(&mut self, ending: &str, labels: &[(&str, &str)], value: f64) -> Result<(), Error> {
        write!(self.out, "{}{ending}", self.name)?;
        for (nth, (name, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(self.out, "{}{name}=\"{value}\"", if nth == 0 { "{" } else { "," })?;
        }
        writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" })
    }

    /// Writes a family with one histogram.
    pub(super) fn histogram(&mut self, name: &str, help: &str, times: &Histogram) -> Result<(), Error> {
        self.family(name, Kind::Histogram, help)?;
        self.times(&[], times)
    }

    /// Writes a histogram of the current family with these labels.
    pub(super) fn times(&mut self, labels: &[(&str, &str)], times: &Histogram) -> Result<(), Error> {
        let mut below = 0;
        for (bound, count) in BOUNDS.iter().zip(times.counts) {
            below += count;
            // OpenMetrics wants a bound with a decimal point.
            self.part("_bucket", &[labels, &[("le", &format!("{bound:?}"))]].concat(), below as f64)?;
        }
        self.part("_bucket", &[labels, &[("le", "+Inf")]].concat(), times.count as f64)?;
        self.part("_sum", labels, times.sum)?;
        self.part("_count", labels, times.count as f64)
    }

    /// The complete text.
    pub(crate) fn finish(mut self) -> String {
        if self.is_open {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-163: buckets are cumulative, label values are escaped, and the name of a counter has its suffix where the format wants
    /// it.
    #[test]
    fn families_have_the_form_of_each_format() {
        let mut times = Histogram::default();
        [0.0005, 0.02, 4.0, 9_999.0].into_iter().for_each(|seconds| times.observe(seconds));
        let text = |is_open| {
            let mut text = Text::new(is_open);
            text.family("x", Kind::Counter, "Things.").expect("text");
            text.sample(&[("a", "b\"\\\n"), ("c", "d")], 2.0).expect("text");
            text.histogram("y_seconds", "Times.", &times).expect("text");
            text.finish()
        };
        let (plain, open) = (text(false), text(true));
        assert!(
            plain
                .starts_with("# HELP x_total Things.\n# TYPE x_total counter\nx_total{a=\"b\\\"\\\\\\n\",c=\"d\"} 2\n"),
            "{plain}"
        );
        assert!(open.starts_with("# HELP x Things.\n# TYPE x counter\nx_total{"), "{open}");
        assert!(open.ends_with("y_seconds_sum 10003.0205\ny_seconds_count 4\n# EOF\n"), "{open}");
        for line in ["le=\"0.001\"} 1", "le=\"0.05\"} 2", "le=\"5.0\"} 3", "le=\"3600.0\"} 3", "le=\"+Inf\"} 4"] {
            assert!(plain.contains(&format!("y_seconds_bucket{{{line}\n")), "{line}: {plain}");
        }
    }
}
