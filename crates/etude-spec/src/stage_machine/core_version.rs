//! Version ranges (`b-stages` M2, `requiredCoreVersion`).

/// Version of stage definitions that this program supports.
pub(super) const CORE: [u64; 3] = [1, 0, 0];

/// True if a range contains [`CORE`]; `None` if it is invalid. A range consists of comparisons such as `>=1`, `^1.0`,
/// `~1.2`, `<2`, `1.x` and `*`, all of which must hold, with `||` between alternatives.
pub(super) fn covers_core(range: &str) -> Option<bool> {
    let mut covers = false;
    for alternative in range.split("||") {
        let mut all = true;
        let mut words = alternative.split([' ', '\t', ',']).filter(|word| !word.is_empty()).peekable();
        words.peek()?;
        while let Some(word) = words.next() {
            let op_end = word.find(|c: char| !"<>=^~".contains(c)).unwrap_or(word.len());
            let (op, version) = word.split_at(op_end);
            let version = if version.is_empty() { words.next()? } else { version };
            all &= holds(op, version)?;
        }
        covers |= all;
    }
    Some(covers)
}

/// True if [`CORE`] satisfies the comparison with a version, whose last numbers may be missing.
fn holds(op: &str, version: &str) -> Option<bool> {
    let core = version.split(['-', '+']).next()?;
    let mut given: Vec<u64> = Vec::new();
    for part in core.split('.') {
        match part {
            "*" | "x" | "X" => break,
            number => given.push(number.parse().ok()?),
        }
    }
    if given.len() > 3 {
        return None;
    }
    let mut low = [0; 3];
    low[..given.len()].copy_from_slice(&given);
    // The first version above all that share the first `kept` numbers.
    let after = |kept: usize| {
        let mut high = low;
        high[kept..].fill(0);
        kept.checked_sub(1).map(|last| {
            high[last] = high[last].saturating_add(1);
            high
        })
    };
    let below = |high: Option<[u64; 3]>| high.is_none_or(|high| CORE < high);
    let leading = given.iter().position(|number| *number != 0).map_or(given.len(), |at| at + 1);
    Some(match op {
        ">=" => CORE >= low,
        "<" => CORE < low,
        ">" => !below(after(given.len())),
        "<=" => below(after(given.len())),
        "^" => CORE >= low && below(after(leading)),
        "~" => CORE >= low && below(after(given.len().min(2))),
        "" | "=" => CORE >= low && below(after(given.len())),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::covers_core;

    /// B-M2: common forms of version ranges are understood.
    #[test]
    fn ranges_cover_what_they_say() {
        for (range, expected) in [
            (">=1", Some(true)),
            (">=0.0.1", Some(true)),
            (">= 1.0.0 <2", Some(true)),
            ("^1.0", Some(true)),
            ("^1.1", Some(false)),
            ("^0.9", Some(false)),
            ("~1.0.0", Some(true)),
            ("1.x || 2.x", Some(true)),
            ("*", Some(true)),
            ("1.0.0", Some(true)),
            ("1", Some(true)),
            (">1", Some(false)),
            (">1.0.0", Some(false)),
            ("<=1", Some(true)),
            ("<1", Some(false)),
            ("^2", Some(false)),
            ("2.0.0-beta, >=1", Some(false)),
            ("<=18446744073709551615", Some(true)),
            ("soon", None),
            ("", None),
            (">=", None),
            ("1.2.3.4", None),
        ] {
            assert_eq!(covers_core(range), expected, "{range}");
        }
    }
}
