"""The searches for problems. Each one yields findings: what it is, where, how often, in numbers that code has counted."""

import re
from collections import Counter, defaultdict

from profiling import tidy, values_of
from table import date_form, is_null, kind_of, parse_date

SEVERITIES = ("high", "medium", "low")
SHOWN = 5
EARLIEST_YEAR = 1990
# Spreads and key columns say nothing in a handful of rows.
FEWEST_VALUES = 12


def finding(kind, severity, column, lines, text, **facts):
    """One finding; `lines` are line numbers of the file, of which the first few are kept."""
    return {"kind": kind, "severity": severity, "column": column, "count": len(lines), "lines": sorted(lines)[:SHOWN], "text": text, "facts": facts}


def plural(count, word):
    return f"{count} {word}{'' if count == 1 else 's'}"


def examples(values):
    """The first few different values, cut to a length that can be quoted."""
    return [value[:60] for value in dict.fromkeys(values)][:3]


def ragged_rows(table, _profile, _settings):
    if table.ragged:
        widths = sorted({width for _, width in table.ragged})
        yield finding("ragged_rows", "high", None, [line for line, _ in table.ragged],
                      f"{plural(len(table.ragged), 'row')} with {' or '.join(map(str, widths))} instead of {len(table.columns)} values", expected=len(table.columns), found=widths)


def duplicate_rows(table, _profile, _settings):
    seen, repeats = {}, []
    for line, row in table.rows:
        first = seen.setdefault(tuple(row), line)
        if first != line:
            repeats.append(line)
    if repeats:
        yield finding("duplicate_rows", "high", None, repeats, f"{plural(len(repeats), 'row')} repeating an earlier row in every column", rows=len(table.rows))


def duplicate_keys(table, profile, _settings):
    for index, facts in enumerate(profile["columns"]):
        looks_like_key = re.search(r"(^|[_ ])(id|key|no|number|nr)$", facts["name"].lower()) is not None
        if not looks_like_key or facts["values"] < FEWEST_VALUES or facts["distinct"] < 0.9 * facts["values"] or facts["distinct"] == facts["values"]:
            continue
        rows, lines = defaultdict(set), defaultdict(list)
        for line, row in table.rows:
            if row[index].strip():
                rows[row[index].strip()].add(tuple(row))
                lines[row[index].strip()].append(line)
        # Whole rows that repeat are a finding of their own.
        clashing = [value for value, different in rows.items() if len(different) > 1]
        if clashing:
            where = [line for value in clashing for line in lines[value]]
            text = f"{plural(len(clashing), 'value')} of the key column used by different rows"
            yield finding("duplicate_keys", "high", facts["name"], where, text, values=examples(clashing))


def missing_values(table, profile, _settings):
    for index, facts in enumerate(profile["columns"]):
        if facts["type"] == "empty":
            yield finding("empty_column", "low", facts["name"], [], "no row has a value in this column", rows=profile["rows"])
        elif facts["nulls"]:
            lines = [line for line, row in table.rows if is_null(row[index])]
            share = tidy(round(100 * facts["nulls"] / profile["rows"], 1))
            severity = "medium" if share >= 5 else "low"
            yield finding("missing_values", severity, facts["name"], lines, f"{facts['nulls']} of {profile['rows']} rows ({share} %) without a value", rows=profile["rows"], percent=share)


def mixed_types(table, profile, _settings):
    for index, facts in enumerate(profile["columns"]):
        fitting = {"integer": ("integer",), "number": ("integer", "number"), "date": ("date",)}.get(facts["type"])
        if fitting is None:
            continue
        odd = [(line, value) for line, value in values_of(table, index) if kind_of(value) not in fitting]
        if odd:
            text = f"{plural(len(odd), 'value')} not of the column's type ({facts['type']})"
            yield finding("mixed_types", "high", facts["name"], [line for line, _ in odd], text, values=examples(value for _, value in odd))


def outliers(table, profile, settings):
    for index, facts in enumerate(profile["columns"]):
        if facts["type"] not in ("integer", "number") or facts["values"] < FEWEST_VALUES:
            continue
        spread = facts["q3"] - facts["q1"]
        low, high = facts["q1"] - settings["iqr_factor"] * spread, facts["q3"] + settings["iqr_factor"] * spread
        far = [(line, float(value)) for line, value in values_of(table, index) if kind_of(value) in ("integer", "number") and not low <= float(value) <= high]
        if spread > 0 and far:
            numbers = sorted({tidy(number) for _, number in far})
            yield finding("outliers", "medium", facts["name"], [line for line, _ in far], f"{plural(len(far), 'value')} outside {tidy(low)} to {tidy(high)}",
                          lower_bound=tidy(low), upper_bound=tidy(high), median=facts["median"], smallest=numbers[0], largest=numbers[-1])


def negative_numbers(table, profile, _settings):
    for index, facts in enumerate(profile["columns"]):
        if facts["type"] not in ("integer", "number") or facts["min"] >= 0:
            continue
        below = [(line, float(value)) for line, value in values_of(table, index) if kind_of(value) in ("integer", "number") and float(value) < 0]
        if len(below) <= 0.05 * facts["values"]:
            text = f"{plural(len(below), 'negative value')} in a column that is otherwise not negative"
            yield finding("negative_numbers", "medium", facts["name"], [line for line, _ in below], text, smallest=facts["min"])


def suspicious_dates(table, profile, settings):
    for index, facts in enumerate(profile["columns"]):
        if facts["type"] != "date":
            continue
        impossible, old, future = [], [], []
        for line, value in values_of(table, index):
            day = parse_date(value)
            if day is None:
                if kind_of(value) == "date":
                    impossible.append((line, value))
            elif day.year < EARLIEST_YEAR:
                old.append((line, value))
            elif day > settings["as_of"]:
                future.append((line, value))
        for kind, severity, rows, words in (("impossible_dates", "high", impossible, "that no calendar has"), ("old_dates", "medium", old, f"before the year {EARLIEST_YEAR}"),
                                            ("future_dates", "medium", future, f"after {settings['as_of']}")):
            if rows:
                yield finding(kind, severity, facts["name"], [line for line, _ in rows], f"{plural(len(rows), 'date')} {words}", values=examples(value for _, value in rows))
        if len(facts["forms"]) > 1:
            rarer = list(facts["forms"])[1:]
            text = "dates in " + ", ".join(f"{form} ({count})" for form, count in facts["forms"].items())
            yield finding("mixed_date_forms", "medium", facts["name"], lines_in_forms(table, index, rarer), text, forms=facts["forms"])


def lines_in_forms(table, index, forms):
    return [line for line, value in values_of(table, index) if date_form(value) in forms]


def date_order(table, profile, _settings):
    """Two date columns that keep an order in nearly every row: the rows that break it."""
    dated = [index for index, facts in enumerate(profile["columns"]) if facts["type"] == "date"]
    for first in dated:
        for second in dated:
            pairs = [(line, parse_date(row[first]), parse_date(row[second])) for line, row in table.rows] if first != second else []
            pairs = [pair for pair in pairs if pair[1] and pair[2]]
            # Equal dates fit both ways; the order must show in most of the rows.
            ordered = sum(a < b for _, a, b in pairs)
            broken = [line for line, a, b in pairs if a > b]
            if broken and len(pairs) >= FEWEST_VALUES and ordered >= 0.5 * len(pairs) and len(broken) <= 0.1 * len(pairs):
                earlier, later = profile["columns"][first]["name"], profile["columns"][second]["name"]
                yield finding("date_order", "high", later, broken, f"{plural(len(broken), 'row')} with `{later}` before `{earlier}`", earlier=earlier, later=later)


def spelling_variants(table, profile, _settings):
    for index, facts in enumerate(profile["columns"]):
        if facts["type"] != "text" or facts["distinct"] > 0.5 * max(facts["values"], 1):
            continue
        groups = defaultdict(Counter)
        for _, value in values_of(table, index):
            groups[" ".join(value.split()).casefold()][value] += 1
        variants = {group: counts for group, counts in groups.items() if len(counts) > 1}
        if variants:
            rarer = {value for counts in variants.values() for value, _ in counts.most_common()[1:]}
            lines = [line for line, value in values_of(table, index) if value in rarer]
            shown = [[repr(value[:40]) for value, _ in counts.most_common(3)] for counts in variants.values()][:3]
            text = f"{plural(len(variants), 'value')} written in more than one way (case or spaces)"
            yield finding("spelling_variants", "medium", facts["name"], lines, text, variants=shown)


SEARCHES = (ragged_rows, duplicate_rows, duplicate_keys, mixed_types, suspicious_dates, date_order, missing_values, outliers, negative_numbers, spelling_variants)


def find_problems(table, profile, settings):
    """All findings, the most severe first, with ids in that order."""
    found = [entry for search in SEARCHES for entry in search(table, profile, settings)]
    found.sort(key=lambda entry: SEVERITIES.index(entry["severity"]))
    return [{"id": f"F{position}", **entry} for position, entry in enumerate(found, 1)]
