"""What is in each column of a table: type, nulls, distinct values, range."""

from collections import Counter

from table import date_form, is_null, kind_of, parse_date

MOSTLY = 0.8


def values_of(table, index):
    """(line, value) of every row of a column that is not null."""
    return [(line, row[index]) for line, row in table.rows if not is_null(row[index])]


def column_type(kinds):
    """The type that at least four fifths of a column's values have; integers count as numbers beside numbers."""
    total = sum(kinds.values())
    if not total:
        return "empty"
    for name, count in (("integer", kinds["integer"]), ("number", kinds["integer"] + kinds["number"]), ("date", kinds["date"])):
        if count == total or (count >= MOSTLY * total and (name != "integer" or not kinds["number"])):
            return name
    return "text"


def tidy(number):
    """A float without needless digits: an int where it is whole, else at most six digits behind the point."""
    return int(number) if number == int(number) and abs(number) < 1e15 else round(number, 6)


def quartiles(numbers):
    """The first quartile, the median and the third one, by linear interpolation (as spreadsheets do)."""
    ordered = sorted(numbers)

    def at(share):
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return at(0.25), at(0.5), at(0.75)


def profile_column(table, index):
    """The facts about one column, for the report and for the search for problems."""
    present = values_of(table, index)
    kinds = Counter(kind_of(value) for _, value in present)
    counts = Counter(value.strip() for _, value in present)
    kind = column_type(kinds)
    facts = {"name": table.columns[index], "type": kind, "values": len(present), "nulls": len(table.rows) - len(present), "distinct": len(counts),
             "kinds": {name: kinds[name] for name in ("integer", "number", "date", "text") if kinds[name]}}
    if kind in ("integer", "number"):
        numbers = [float(value) for _, value in present if kind_of(value) in ("integer", "number")]
        first, middle, third = quartiles(numbers)
        facts.update(min=tidy(min(numbers)), max=tidy(max(numbers)), median=tidy(middle), q1=tidy(first), q3=tidy(third))
    elif kind == "date":
        days = [day for _, value in present if (day := parse_date(value))]
        facts.update(min=str(min(days)) if days else None, max=str(max(days)) if days else None,
                     forms=dict(Counter(form for _, value in present if (form := date_form(value))).most_common()))
    elif kind == "text" and len(counts) <= 12:
        facts["top"] = [[value[:60], count] for value, count in counts.most_common()]
    return facts


def profile(table):
    """The profile of a whole table."""
    return {"file": table.name, "encoding": table.encoding, "delimiter": {"\t": "tab"}.get(table.delimiter, table.delimiter), "rows": len(table.rows),
            "columns": [profile_column(table, index) for index in range(len(table.columns))]}
