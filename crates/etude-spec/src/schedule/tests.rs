//! Patterns over years with clock changes.

use super::*;

fn timing(pattern: &str, name: &str) -> Timing {
    Timing::Cron(Cron::parse(pattern).expect(pattern), zone(name).expect(name))
}

fn ms(time: &str) -> i64 {
    time.parse::<Timestamp>().expect(time).as_millisecond()
}

fn ticks(pattern: &str, name: &str, after: &str, until: &str) -> Vec<String> {
    let found = timing(pattern, name).between(ms(after), ms(until), usize::MAX);
    found.into_iter().map(|at| Timestamp::from_millisecond(at).expect("in range").to_string()).collect()
}

/// S-99: 02:30 in a gap ticks at 03:00; in an overlap it ticks once, the first time.
#[test]
fn a_fixed_time_in_a_gap_ticks_right_after_it_and_in_an_overlap_once() {
    let berlin = |from, to| ticks("30 2 * * *", "Europe/Berlin", from, to);
    assert_eq!(
        berlin("2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z"),
        ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
    );
    assert_eq!(
        berlin("2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"),
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    );
    // Two times in one gap are one tick.
    let both = ticks("0,30 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T06:00:00Z");
    assert_eq!(both, ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]);
}

/// S-100: `*/15` follows real time through both clock changes.
#[test]
fn a_pattern_with_steps_follows_real_time() {
    for (zone, from, to) in [
        ("Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
        ("Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
        ("America/New_York", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"),
    ] {
        let found = timing("*/15 * * * *", zone).between(ms(from), ms(to), usize::MAX);
        let every: Vec<i64> = (1..).map(|n| ms(from) + n * 900_000).take_while(|at| *at <= ms(to)).collect();
        assert_eq!(found, every, "{zone}");
    }
}

/// S-99, S-100: over a year in three zones, a daily time ticks once each day, and a pattern with steps at equal
/// distances.
#[test]
fn a_year_has_each_day_once() {
    for zone in ["Europe/Berlin", "America/New_York", "Australia/Sydney"] {
        let (from, to) = (ms("2026-01-01T12:00:00Z"), ms("2027-01-01T12:00:00Z"));
        for pattern in ["30 2 * * *", "0 0 * * *", "59 23 * * *", "15 1 * * *"] {
            let timing = timing(pattern, zone);
            let found = timing.between(from, to, usize::MAX);
            let days: std::collections::BTreeSet<String> = found.iter().map(|at| timing.date(*at)).collect();
            assert_eq!((found.len(), days.len()), (365, 365), "{pattern} in {zone}");
            // Ticks in pieces equal those at once, and each tick is the next one of the instant before it.
            let (first, second) = (from + 9_000_000_000, from + 9_000_000_001);
            let pieces =
                [timing.between(from, first, 999), timing.between(first, second, 9), timing.between(second, to, 999)];
            assert_eq!(pieces.concat(), found);
            assert!(found.windows(2).all(|two| timing.next(two[0]) == Some(two[1])), "{pattern} in {zone}");
        }
        let steps = timing("*/20 * * * *", zone).between(from, to, usize::MAX);
        assert_eq!(steps.len(), 365 * 72, "{zone}");
        assert!(steps.windows(2).all(|two| two[1] - two[0] == 1_200_000), "{zone}");
    }
}

#[test]
fn days_have_the_forms_of_cron() {
    let days = |pattern: &str| -> Vec<String> {
        let found = timing(pattern, "UTC").between(ms("2026-01-31T12:00:00Z"), ms("2026-03-01T00:00:00Z"), 99);
        found.into_iter().map(|at| timing(pattern, "UTC").date(at)[5..].to_owned()).collect()
    };
    assert_eq!(days("0 0 L * *"), ["02-28"]);
    assert_eq!(days("0 0 LW * *"), ["02-27"]);
    // The 15th is a Sunday, the 14th a Saturday; the 1st is a Sunday.
    assert_eq!(days("0 0 15W * *"), ["02-16"]);
    assert_eq!(days("0 0 14W * *"), ["02-13"]);
    assert_eq!(days("0 0 1W 2 *"), ["02-02"]);
    assert_eq!(days("0 0 * * fri#2"), ["02-13"]);
    assert_eq!(days("0 0 * * 5L"), ["02-27"]);
    assert_eq!(days("0 0 * FEB SUN"), days("0 0 * 2 7"));
    assert_eq!(days("0 0 * * 0"), ["02-01", "02-08", "02-15", "02-22", "03-01"]);
    // Day and weekday together: one of them is enough.
    assert_eq!(days("0 0 10 2 MON-TUE"), ["02-02", "02-03", "02-09", "02-10", "02-16", "02-17", "02-23", "02-24"]);
    assert_eq!(days("0 0 3-9/3 * *"), ["02-03", "02-06", "02-09"]);
    assert_eq!(days("@weekly"), days("0 0 * * SUN"));
    assert_eq!(days("@monthly"), ["02-01", "03-01"]);
}

/// Otherwise the time to find the next date would grow with the length of the list.
#[test]
fn equal_days_count_once() {
    let cron = |pattern: &str| Cron::parse(pattern).expect(pattern);
    assert_eq!(cron("0 0 15W,1W,15W * FRI#2,1L,5#2,1L"), cron("0 0 1W,15W * FRI#2,1L"));
}

#[test]
fn a_pattern_that_is_none_is_refused_with_the_part() {
    for (pattern, wanted) in [
        ("* * * *", "it has 4 fields; a pattern has five: minute, hour, day, month, weekday"),
        ("0 0 0 * * *", "it has 6 fields; a pattern has five: minute, hour, day, month, weekday"),
        ("61 * * * *", "the minute cannot be `61`; minutes are 0 to 59"),
        ("5-1 * * * *", "the minute cannot be `5-1`; minutes are 0 to 59"),
        ("*/0 * * * *", "the minute cannot be `*/0`; minutes are 0 to 59"),
        ("+5 * * * *", "the minute cannot be `+5`; minutes are 0 to 59"),
        ("0 24 * * *", "the hour cannot be `24`; hours are 0 to 23"),
        ("0 0 * foo *", "the month cannot be `foo`; months are 1 to 12 or `JAN` to `DEC`"),
        ("0 0 * * 5#6", "the weekday cannot be `5#6`; weekdays are 0 to 7 or `SUN` to `SAT`, `5L` and `5#2`"),
        ("@often", "`@often` is not `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`"),
        ("0 0 30 2 *", "no date matches the pattern"),
        ("", "it has 0 fields; a pattern has five: minute, hour, day, month, weekday"),
    ] {
        assert_eq!(Cron::parse(pattern).expect_err(pattern).to_string(), wanted, "{pattern}");
    }
    assert_eq!(timing("0 0 29 2 *", "UTC").next(ms("2026-01-01T00:00:00Z")), Some(ms("2028-02-29T00:00:00Z")));
}

#[test]
fn intervals_count_from_midnight_utc() {
    let timing = Timing::Every(6 * 3_600_000);
    assert_eq!(timing.next(ms("2026-05-05T07:00:00Z")), Some(ms("2026-05-05T12:00:00Z")));
    assert_eq!(timing.next(ms("2026-05-05T12:00:00Z")), Some(ms("2026-05-05T18:00:00Z")));
    assert_eq!(
        timing.newest(0, ms("2026-05-05T13:00:00Z"), 2),
        [ms("2026-05-05T06:00:00Z"), ms("2026-05-05T12:00:00Z")]
    );
}

/// S-109: the day of a tick is in the schedule's zone.
#[test]
fn the_date_is_that_of_the_zone() {
    assert_eq!(timing("0 1 * * *", "Europe/Berlin").date(ms("2026-07-31T23:00:00Z")), "2026-08-01");
    assert_eq!(Timing::Every(1_000).date(ms("2026-07-31T23:00:00Z")), "2026-07-31");
    assert!(zone("Mars/Olympus").is_none() && zone("+02:00").is_none());
    assert!(zone("local").is_some());
}
