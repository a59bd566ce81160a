//! Enumeration of all moments at which a construct is killed, and the resulting row of the table.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::construct::{Construct, answers};
use super::life::{Edit, Life, Moment, live};
use super::shim::{self, Event, Fault};

/// Thoroughness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Some moments of each kind, for every test run.
    Short,
    /// Every write: one kill before it, the next one after it, the next one torn; moments in between; second deaths.
    Long,
    /// Every write in all three ways, and more of everything else.
    Full,
}

/// Result of killing one construct everywhere.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) construct: &'static str,
    /// Number of writes to the journal of an uninterrupted run, all its processes together.
    pub(super) writes: usize,
    /// Number of lives, and number of processes killed in them.
    pub(super) lives: usize,
    pub(super) kills: usize,
    pub(super) resumes: usize,
    /// Number of effects that began again because they were active at a kill.
    pub(super) repeated: usize,
    /// Numbers of completed destructors, of all lives.
    pub(super) destructors: BTreeSet<usize>,
    pub(super) differences: Vec<String>,
}

impl Row {
    fn of(construct: &Construct) -> Self {
        Self {
            construct: construct.name,
            writes: 0,
            lives: 0,
            kills: 0,
            resumes: 0,
            repeated: 0,
            destructors: BTreeSet::new(),
            differences: Vec::new(),
        }
    }

    fn add(&mut self, moments: &[Moment], life: &Life, differences: Vec<String>, repeated: usize) {
        self.lives += 1;
        self.kills += life.kills;
        self.resumes += life.resumes;
        self.repeated += repeated;
        self.destructors.insert(life.destructors());
        self.differences
            .extend(differences.into_iter().map(|what| format!("{}, killed {moments:?}: {what}", self.construct)));
    }
}

/// Head of the table.
pub(super) const HEAD: &str = "| construct | writes | lives | kills | resumes | begun again, under way at a kill | ends of the destructor | differences |\n|---|---:|---:|---:|---:|---:|---|---:|";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let destructors = match (self.destructors.first(), self.destructors.last()) {
            (Some(0) | None, Some(0) | None) => "none".to_owned(),
            (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
            (least, _) => least.map(usize::to_string).unwrap_or_default(),
        };
        write!(
            f,
            "| {} | {} | {} | {} | {} | {} | {destructors} | {} |",
            self.construct,
            self.writes,
            self.lives,
            self.kills,
            self.resumes,
            self.repeated,
            self.differences.len()
        )
    }
}

/// Kills a construct at all moments of the form.
pub(super) fn everywhere(construct: &Construct, form: Form) -> Row {
    let server = answers();
    let whole = live(&Construct { edit: None, ..*construct }, &server, &[]);
    assert_eq!(whole.document["status"], construct.ends, "{}: {:#}", construct.name, whole.document);
    let most = if construct.further.is_some() { 2 } else { 1 };
    assert!(whole.begun.values().all(|times| *times <= most), "{}: {:?}", construct.name, whole.begun);
    assert_eq!(whole.unmatched(), [""; 0], "{}: effects without a record", construct.name);
    assert!(whole.faults.is_empty(), "{}: {:?}", construct.name, whole.faults);
    // The reference for an edited definition is a run that was edited before it began.
    let edited = construct.edit.is_some().then(|| live(&edited_before(construct), &server, &[]));
    assert!(edited.as_ref().is_none_or(|edited| edited.document != whole.document), "the edit changes nothing");
    let (mut row, mut is_refused) = (Row::of(construct), false);
    row.writes = whole.events.iter().map(Vec::len).sum();
    for moments in all_moments(&whole.events, whole.took, form) {
        let life = live(construct, &server, &moments);
        let differences = life.differences(construct, &whole, edited.as_ref());
        let repeated = life.repeated(&whole);
        is_refused |= life.edit == Some(Edit::Accepted);
        row.add(&moments, &life, differences, repeated);
    }
    if edited.is_some() && !is_refused {
        row.differences.push(format!("{}: no resume was refused after the edit", construct.name));
    }
    row
}

fn edited_before(construct: &Construct) -> Construct {
    Construct { build: super::construct::edited_sequence, edit: None, ..*construct }
}

/// Moments of all lives.
fn all_moments(events: &[Vec<Event>], took: Duration, form: Form) -> Vec<Vec<Moment>> {
    let mut all = Vec::new();
    if shim::library().is_some() {
        let picked: Vec<Vec<Moment>> = match form {
            Form::Full => places(events).flat_map(|place| FAULTS.map(|fault| at(place, fault))).collect(),
            Form::Long => places(events).zip(FAULTS.iter().cycle()).map(|(place, fault)| at(place, *fault)).collect(),
            Form::Short => {
                let places: Vec<_> = places(events).collect();
                let begun = places.iter().position(|(process, number)| is_of_run(&events[*process][number - 1]));
                let (before, after) = places.split_at(begun.unwrap_or(0));
                let some = after.iter().step_by((after.len() / 5).max(1)).chain(before.get(before.len() / 2));
                some.zip(FAULTS.iter().cycle()).map(|(place, fault)| at(*place, *fault)).collect()
            }
        };
        all.extend(second_deaths(&picked, form));
        all.extend(picked);
    }
    all.extend(in_between(took, form));
    all
}

const FAULTS: [fn(usize) -> Fault; 3] = [Fault::After, Fault::Torn, Fault::Before];

/// Position of each event: its process, and its number within it.
fn places(events: &[Vec<Event>]) -> impl Iterator<Item = (usize, usize)> + '_ {
    events
        .iter()
        .enumerate()
        .flat_map(|(process, of_process)| (1..=of_process.len()).map(move |number| (process, number)))
}

fn at((process, number): (usize, usize), fault: fn(usize) -> Fault) -> Vec<Moment> {
    let mut moments = vec![Moment::Never; process];
    moments.push(Moment::Write(fault(number)));
    moments
}

/// From the lock file on there is a run; before that, only its arguments are stored.
fn is_of_run(event: &Event) -> bool {
    event.file.starts_with("locks/")
}

/// The resume is killed as well, some writes after it began, and so is the resume of the resume.
fn second_deaths(first: &[Vec<Moment>], form: Form) -> Vec<Vec<Moment>> {
    let (stride, seconds) = match form {
        Form::Short => (3, &[5][..]),
        Form::Long => (8, &[5][..]),
        Form::Full => (10, &[2, 6, 14][..]),
    };
    let pairs = first.iter().step_by(stride).flat_map(|moments| seconds.iter().map(move |second| (moments, *second)));
    pairs
        .map(|(moments, second)| {
            let again = [Moment::Write(Fault::After(second)), Moment::Write(Fault::Before(second + 2))];
            [moments.as_slice(), &again].concat()
        })
        .collect()
}

/// Arbitrary moments, repeatedly within one life. The numbers are the same each time; the moments are not.
fn in_between(took: Duration, form: Form) -> Vec<Vec<Moment>> {
    let lives = match (form, shim::library()) {
        (Form::Full, _) => 40,
        (Form::Long, _) => 12,
        (Form::Short, Some(_)) => 1,
        (Form::Short, None) => 8,
    };
    let mut seed = 0x9e37_79b9_u64;
    let mut part = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % 1000
    };
    (0..lives).map(|_| (0..3).map(|_| Moment::After(took.mul_f64(part() as f64 / 1000.0))).collect()).collect()
}
