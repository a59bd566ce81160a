"""Reads a CSV file as it is: encoding, delimiter, ragged rows, and what each value looks like."""

import csv
import io
import re
from dataclasses import dataclass, field
from datetime import date

from step_io import APP_DIR, StepError, user_path

NULL_WORDS = {"", "na", "n/a", "nan", "null", "none", "-"}
INTEGER = re.compile(r"[+-]?(0|[1-9]\d*)")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
DATE_FORMS = (("YYYY-MM-DD", re.compile(r"(\d{4})-(\d{2})-(\d{2})([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"), (1, 2, 3)),
              ("MM/DD/YYYY", re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})"), (3, 1, 2)),
              ("DD.MM.YYYY", re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})"), (3, 2, 1)))


@dataclass
class Table:
    """A CSV file in memory. `rows` are (line in the file, values); every row has as many values as there are columns."""

    name: str
    encoding: str
    delimiter: str
    columns: list
    rows: list = field(default_factory=list)
    ragged: list = field(default_factory=list)


def locate(file):
    """The path that the parameter `file` means; empty is the bundled table."""
    if "\0" in file:
        raise StepError(f"`file` is {file!r}; give the path of a CSV file")
    path = user_path(file) if file else APP_DIR / "data" / "orders.csv"
    if not path.is_file():
        raise StepError(f"`file`: {path} {'is not a file' if path.exists() else 'does not exist'}")
    return path


def read_table(file, max_bytes):
    """The table in that file."""
    path = locate(file)
    size = path.stat().st_size
    if size > max_bytes:
        raise StepError(f"`file`: {path} has {size:,} bytes; `max_bytes` is {max_bytes:,}")
    raw = path.read_bytes()
    if b"\0" in raw and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise StepError(f"`file`: {path} holds NUL bytes; it is not a CSV text file")
    text, encoding = decode(path, raw)
    return parse(path, text, encoding)


def decode(path, raw):
    """The text and the name of its encoding; Latin-1 is the last resort, because every byte means something in it."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if raw.startswith(mark):
            try:
                return raw.decode(name), f"{name.split('-sig')[0]} with a byte order mark"
            except UnicodeDecodeError as error:
                raise StepError(f"`file`: {path} starts like {name}, but byte {error.start} does not fit") from None
    try:
        return raw.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return raw.decode("latin-1"), "latin-1 (it is not valid utf-8)"


def parse(path, text, encoding):
    """The rows of the text, each with the line of the file that it starts on."""
    delimiter = find_delimiter(text)
    csv.field_size_limit(1 << 24)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    table, line = None, 1
    try:
        for values in reader:
            start, line = line, reader.line_num + 1
            if not values:
                continue
            if table is None:
                table = Table(path.name, encoding, delimiter, name_columns(values))
                continue
            width = len(table.columns)
            if len(values) != width:
                table.ragged.append((start, len(values)))
            table.rows.append((start, (values + [""] * width)[:width]))
    except csv.Error as error:
        raise StepError(f"`file`: {path} line {reader.line_num}: {error}") from None
    if table is None:
        raise StepError(f"`file`: {path} is empty; the first line must name the columns")
    if not table.rows:
        raise StepError(f"`file`: {path} has a line of column names and no row below it")
    return table


def find_delimiter(text):
    """The delimiter: of `, ; TAB |` the one that the first lines hold most evenly outside quotes."""
    lines = [re.sub(r'"[^"]*"', "", line) for line in text.splitlines()[:20] if line.strip()]
    return max(",;\t|", key=lambda mark: (min((line.count(mark) for line in lines), default=0), lines[0].count(mark) if lines else 0))


def name_columns(values):
    """Column names, made unique: a nameless one is called by its position, a repeated one is numbered."""
    names = []
    for position, value in enumerate(values, 1):
        name = " ".join(value.split()) or f"column {position}"
        names.append(name if name not in names else f"{name} (column {position})")
    return names


def is_null(value):
    """Whether a value stands for nothing."""
    return value.strip().lower() in NULL_WORDS


def kind_of(value):
    """integer, number, date or text. Digits with a leading zero (`007`) are text: they are labels."""
    value = value.strip()
    if INTEGER.fullmatch(value):
        return "integer"
    if NUMBER.fullmatch(value) and not re.match(r"[+-]?0\d", value):
        return "number"
    return "date" if date_form(value) else "text"


def date_form(value):
    """The form that a value is written in as a date, whether or not there is such a day; else None."""
    return next((name for name, pattern, _ in DATE_FORMS if pattern.fullmatch(value.strip())), None)


def parse_date(value):
    """The day that a value names; None if it is no date or there is no such day."""
    for _, pattern, order in DATE_FORMS:
        found = pattern.fullmatch(value.strip())
        if found:
            try:
                return date(*(int(found[group]) for group in order))
            except ValueError:
                return None
    return None
