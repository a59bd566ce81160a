use std::cell::Cell;

use etude_spec::automation;
use etude_spec::source::SourceFile;

use super::*;

/// A pause that comes between the reading and the writing of another change stays.
#[tokio::test]
async fn a_change_overwrites_no_other_one() {
    let (dir, server) = crate::work::tests::process(false);
    let file = SourceFile::new("etude.yaml", "schedules:\n  often: {pipeline: p, every: 1h}\n");
    let automation = Arc::new(automation::read(&file, None));
    let app = ServedApp { slug: "demo".to_owned(), dir: dir.path().to_owned() };
    let found = Found { app, automation, index: 0 };
    let changed = blocking(move || {
        let pause = |is_paused| {
            let change = move |kept: Option<Kept>| Kept { is_paused, ..kept.unwrap_or_default() };
            Kept::change(&server, &found, change)
        };
        // Without an entry, and with one.
        for pattern in ["first", "second"] {
            let is_first = Cell::new(true);
            let kept = Kept::change(&server, &found, |kept| {
                if is_first.replace(false) {
                    pause(true).expect("it is written");
                }
                Kept { pattern: pattern.to_owned(), ..kept.unwrap_or_default() }
            })?;
            assert_eq!((kept.pattern.as_str(), kept.is_paused), (pattern, true));
            assert_eq!(Kept::read(&server, &found)?, Some(kept));
            pause(false)?;
        }
        Ok(())
    });
    changed.await.expect("it is written");
}
