use std::cell::Cell;
use std::path::Path;

use etude_spec::automation;
use etude_spec::source::SourceFile;

use super::*;
use crate::blocking::blocking;

/// A schedule of the app in `dir`.
fn hourly(dir: &Path) -> Found {
    let file = SourceFile::new("etude.yaml", "schedules:\n  often: {pipeline: p, every: 1h}\n");
    let app = ServedApp { slug: "demo".to_owned(), dir: dir.to_owned() };
    Found { app, automation: Arc::new(automation::read(&file, None)), index: 0 }
}

/// Two concurrent changes are both kept, even if neither of them pauses: the second one sees the first.
#[tokio::test]
async fn two_changes_at_once_are_both_kept() {
    let (dir, server) = crate::work::tests::process(false);
    let found = hourly(dir.path());
    let changed = blocking(move || {
        for is_paused in [false, true] {
            Kept::change(server.schedules(), &found, |_| Kept {
                pattern: "old".to_owned(),
                is_paused,
                ..Kept::default()
            })?;
            let is_first = Cell::new(true);
            let seen = Cell::new(0);
            Kept::change(server.schedules(), &found, |kept| {
                let kept = kept.unwrap_or_default();
                seen.set(kept.since_ms);
                if is_first.replace(false) {
                    let moved = |kept: Option<Kept>| Kept { pattern: "new".to_owned(), since_ms: 7, ..kept.unwrap() };
                    Kept::change(server.schedules(), &found, moved).expect("it is written");
                }
                Kept { reason: Some("why".to_owned()), ..kept }
            })?;
            let kept = Kept::read(server.schedules(), &found)?.expect("it is kept");
            assert_eq!((kept.pattern.as_str(), kept.since_ms, seen.get()), ("new", 7, 7));
            assert_eq!((kept.reason.as_deref(), kept.is_paused), (Some("why"), is_paused));
        }
        Ok(())
    });
    changed.await.expect("it is written");
}

/// A pause that is written between the read and the write of another change stays.
#[tokio::test]
async fn a_change_overwrites_no_other_one() {
    let (dir, server) = crate::work::tests::process(false);
    let found = hourly(dir.path());
    let changed = blocking(move || {
        let pause = |is_paused| {
            let change = move |kept: Option<Kept>| Kept { is_paused, ..kept.unwrap_or_default() };
            Kept::change(server.schedules(), &found, change)
        };
        // Without an entry, and with one.
        for pattern in ["first", "second"] {
            let is_first = Cell::new(true);
            let kept = Kept::change(server.schedules(), &found, |kept| {
                if is_first.replace(false) {
                    pause(true).expect("it is written");
                }
                Kept { pattern: pattern.to_owned(), ..kept.unwrap_or_default() }
            })?;
            assert_eq!((kept.pattern.as_str(), kept.is_paused), (pattern, true));
            assert_eq!(Kept::read(server.schedules(), &found)?, Some(kept));
            pause(false)?;
        }
        Ok(())
    });
    changed.await.expect("it is written");
}
