"""The scripts of this app, each run as the runner runs it: JSON on stdin, in the pipeline's directory."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

APP = Path(__file__).resolve().parents[1]
PIPELINE = APP / "pipelines" / "csv-audit"
# These tests say themselves where etude was called, also when they are run by a step of etude.
OUTSIDE = {name: value for name, value in os.environ.items() if name != "ETUDE_CALLER_DIR"}


def run(script, request, **env):
    """The finished process of a step script."""
    return subprocess.run([sys.executable, f"steps/{script}"], cwd=PIPELINE, input=json.dumps(request).encode(), capture_output=True, env={**OUTSIDE, **env}, check=False)


class Case(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.root = Path(made.name)

    def write(self, content):
        path = self.root / "t.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def output(self, script, request, **env):
        done = run(script, request, **env)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)["output"]

    def error(self, script, request):
        done = run(script, request)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, b"")
        self.assertNotIn(b"Traceback", done.stderr)
        return done.stderr.decode()

    def profile(self, content):
        return self.output("profile_csv.py", {"input": {"file": self.write(content)}})

    def findings(self, content, **settings):
        request = {"input": {"file": self.write(content), "as_of": "2026-07-01", **settings}}
        request["steps"] = {"profile": {"output": self.output("profile_csv.py", request)}}
        return self.output("find_problems.py", request)["findings"]

    def kinds(self, content, **settings):
        return [(entry["kind"], entry["column"]) for entry in self.findings(content, **settings)]


class Profile(Case):
    def test_types_nulls_and_ranges(self):
        found = self.profile("id,n,price,day,name\n007,1,1.5,2026-01-02,a\n008,3,2,2026-01-01,b\n009,,NA,,a\n")
        by_name = {column["name"]: column for column in found["columns"]}
        self.assertEqual({name: column["type"] for name, column in by_name.items()}, {"id": "text", "n": "integer", "price": "number", "day": "date", "name": "text"})
        self.assertEqual((by_name["n"]["nulls"], by_name["price"]["nulls"], by_name["n"]["median"], by_name["price"]["max"]), (1, 1, 2, 2))
        self.assertEqual((by_name["day"]["min"], by_name["day"]["max"], by_name["name"]["top"]), ("2026-01-01", "2026-01-02", [["a", 2], ["b", 1]]))

    def test_quotes_line_ends_and_delimiters(self):
        for mark in ",;\t|":
            with self.subTest(mark):
                found = self.profile(f'a{mark}b\r\n"x{mark}""y"""{mark}"two\r\nlines"\r\n1{mark}2\r\n')
                self.assertEqual((found["rows"], [c["name"] for c in found["columns"]]), (2, ["a", "b"]))

    def test_encodings(self):
        text = "name,city\nJörg,Köln\n"
        for raw, encoding in ((text.encode(), "utf-8"), (b"\xef\xbb\xbf" + text.encode(), "utf-8 with a byte order mark"), (text.encode("utf-16"), "utf-16 with a byte order mark"),
                              (text.encode("latin-1"), "latin-1 (it is not valid utf-8)")):
            with self.subTest(encoding):
                found = self.profile(raw)
                self.assertEqual((found["encoding"], found["columns"][0]["name"], found["columns"][1]["top"]), (encoding, "name", [["Köln", 1]]))

    def test_nameless_and_repeated_columns_get_names(self):
        self.assertEqual([c["name"] for c in self.profile("a,,a\n1,2,3\n")["columns"]], ["a", "column 2", "a (column 3)"])

    def test_huge_numbers_do_not_stop_the_profile(self):
        found = self.profile("n\n1e308\n99999999999999999999999\n1\n")
        self.assertEqual(found["columns"][0]["type"], "number")

    def test_files_that_are_no_table_are_refused_with_a_reason(self):
        for content, words in ((b"", "is empty"), (b"a,b\n", "no row below it"), (b"\x89PNG\0\0", "NUL bytes"), (b"\xff\xfea", "does not fit")):
            with self.subTest(words):
                self.assertIn(words, self.error("profile_csv.py", {"input": {"file": self.write(content)}}))

    def test_a_relative_path_begins_where_etude_was_called(self):
        self.write("a,b\n1,2\n")
        for file, env in (("t.csv", {"ETUDE_CALLER_DIR": str(self.root)}), ("../t.csv", {"ETUDE_CALLER_DIR": str(self.root / "x")}), ("~/t.csv", {"HOME": str(self.root)})):
            with self.subTest(file):
                (self.root / "x").mkdir(exist_ok=True)
                self.assertEqual(self.output("profile_csv.py", {"input": {"file": file}}, **env)["rows"], 1)
        self.assertEqual(self.output("profile_csv.py", {"input": {"file": "tests/data/clean.csv"}})["rows"], 30)

    def test_the_bundled_orders_are_meant_where_no_file_is_given(self):
        self.assertEqual(self.output("profile_csv.py", {"input": {"file": ""}}, ETUDE_CALLER_DIR=str(self.root))["rows"], 200)

    def test_places_that_are_no_file_are_refused_with_a_reason(self):
        self.assertIn("does not exist", self.error("profile_csv.py", {"input": {"file": "gone.csv"}}))
        self.assertIn("is not a file", self.error("profile_csv.py", {"input": {"file": str(self.root)}}))
        self.assertIn("`max_bytes` is 3", self.error("profile_csv.py", {"input": {"file": self.write("a,b\n1,2\n"), "max_bytes": 3}}))


class Findings(Case):
    def test_every_planted_problem_of_the_orders_is_found(self):
        request = {"input": {"as_of": "2026-07-01"}}
        request["steps"] = {"profile": {"output": self.output("profile_csv.py", request)}}
        found = self.output("find_problems.py", request)["findings"]
        at = {(entry["kind"], entry["column"]): entry["lines"] for entry in found}
        for key, lines in {("ragged_rows", None): [201], ("duplicate_rows", None): [182], ("duplicate_keys", "order_id"): [96, 97], ("mixed_types", "quantity"): [65],
                           ("mixed_types", "unit_price"): [90], ("impossible_dates", "ordered_on"): [27], ("date_order", "shipped_on"): [133],
                           ("mixed_date_forms", "ordered_on"): [72, 73, 74], ("future_dates", "shipped_on"): [112], ("outliers", "quantity"): [19],
                           ("outliers", "unit_price"): [44], ("negative_numbers", "quantity"): [152], ("spelling_variants", "country"): [11, 57, 79, 123]}.items():
            with self.subTest(key):
                self.assertEqual(at.get(key), lines)
        self.assertEqual([entry["id"] for entry in found], [f"F{n}" for n in range(1, len(found) + 1)])
        ranks = [("high", "medium", "low").index(entry["severity"]) for entry in found]
        self.assertEqual(ranks, sorted(ranks))

    def test_the_orders_are_the_ones_that_the_generator_writes(self):
        before = (APP / "data" / "orders.csv").read_bytes()
        made = self.root / "data"
        made.mkdir()
        (made / "generate_orders.py").write_bytes((APP / "data" / "generate_orders.py").read_bytes())
        subprocess.run([sys.executable, made / "generate_orders.py"], check=True)
        self.assertEqual((made / "orders.csv").read_bytes(), before)

    def test_clean_data_has_no_findings(self):
        rows = "".join(f"K{n},{n % 7},2026-01-{n % 28 + 1:02}\n" for n in range(60))
        self.assertEqual(self.findings("key,amount,day\n" + rows), [])

    def test_ragged_rows_are_reported_and_the_rest_is_read(self):
        (entry, *_) = self.findings("a,b\n1,2\n3\n4,5,6\n")
        self.assertEqual((entry["kind"], entry["lines"], entry["facts"]), ("ragged_rows", [3, 4], {"expected": 2, "found": [1, 3]}))

    def test_lines_count_in_the_file_also_behind_line_ends_in_quotes(self):
        (entry, *_) = self.findings('a,b\n"x\ny\nz",1\n\n"w",2,3\n')
        self.assertEqual(entry["lines"], [6])

    def test_as_of_decides_what_the_future_is(self):
        rows = "day\n" + "2026-05-01\n" * 5
        self.assertEqual(self.kinds(rows, as_of="2026-04-30")[-1], ("future_dates", "day"))
        self.assertNotIn(("future_dates", "day"), self.kinds(rows, as_of="2026-05-01"))

    def test_the_factor_decides_what_an_outlier_is(self):
        rows = "n\n" + "".join(f"{n}\n" for n in [*range(1, 21), 35])
        self.assertEqual(self.kinds(rows), [])
        self.assertEqual(self.kinds(rows, iqr_factor=1), [("outliers", "n")])

    def test_a_constant_column_has_no_outliers(self):
        self.assertNotIn(("outliers", "n"), self.kinds("n,m\n" + "".join(f"5,{k}\n" for k in range(30)) + "6,30\n"))

    def test_the_most_severe_findings_are_kept(self):
        request = {"input": {"as_of": "2026-07-01", "max_findings": 2}}
        request["steps"] = {"profile": {"output": self.output("profile_csv.py", request)}}
        found = self.output("find_problems.py", request)
        self.assertEqual(([entry["id"] for entry in found["findings"]], found["left_out"]), (["F1", "F2"], 16))

    def test_a_day_that_does_not_exist_is_refused(self):
        self.assertIn("write a day as YYYY-MM-DD", self.error("find_problems.py", {"input": {"as_of": "2026-02-30"}, "steps": {"profile": {"output": {}}}}))


FOUND = [{"id": "F1", "kind": "outliers", "severity": "medium", "column": "prix é", "count": 2, "lines": [19], "text": "2 values outside -12 to 23.5", "facts": {"largest": 18900}},
         {"id": "F2", "kind": "missing_values", "severity": "low", "column": "b", "count": 7, "lines": [4], "text": "7 of 200 rows (3.5 %)", "facts": {}}]


def answer(first="Two values stand apart.", second="Some are missing.", summary="Look at prices first.", ids=("F1", "F2")):
    texts = {"F1": first, "F2": second}
    return {"summary": summary, "explanations": [{"finding_id": name, "explanation": texts.get(name, "x"), "suggestion": "Ask the shop."} for name in ids]}


class Validate(Case):
    def verdict(self, output):
        done = run("validate_explanations.py", {"output": output, "input": {}, "steps": {"profile": {"output": {"rows": 200, "columns": [{}, {}, {}]}}, "find_problems": {"output": {"findings": FOUND}}}})
        told = json.loads(done.stdout)
        self.assertEqual(done.returncode == 0, told["valid"])
        return told.get("errors", [])

    def test_explanations_with_the_numbers_of_their_finding_pass(self):
        self.assertEqual(self.verdict(answer("2 values, up to 18,900, lie outside -12 to 23.50 (F1).", "7 of 200 rows, 3.5%, see line 4.", "Of 200 rows in 3 columns, 7 lack a value; 2 findings; use ISO 8601 and UTF-8.")), [])

    def test_a_number_that_the_finding_does_not_hold_is_rejected(self):
        self.assertEqual(self.verdict(answer(first="About 1% of the 7 values.")),
                         ["explanation of F1: the number 1 is not in finding F1; remove it or use a number of the finding",
                          "explanation of F1: the number 7 is not in finding F1; remove it or use a number of the finding"])
        (error,) = self.verdict(answer(summary="This costs 5,000 a year."))
        self.assertIn("summary: the number 5,000 is not in any finding", error)

    def test_digits_of_escapes_are_no_numbers_of_a_finding(self):
        self.assertEqual(len(self.verdict(answer(first="It is 9."))), 1)
        self.assertEqual(len(self.verdict(answer(first="It is 00."))), 1)

    def test_every_finding_is_explained_exactly_once(self):
        self.assertEqual([error.split(";")[0] for error in self.verdict(answer(ids=("F1", "F1", "F9")))],
                         ["finding F1 is explained 2 times", "finding_id F9 is no finding", "finding F2 (missing_values) is not explained"])


class ListFindings(Case):
    def listed(self, findings, left_out=0, name="t.csv"):
        steps = {"profile": {"output": {"file": name, "rows": 3, "columns": [{}, {}]}}, "find_problems": {"output": {"findings": findings, "left_out": left_out}}}
        done = subprocess.run([sys.executable, "steps/list_findings.py"], cwd=APP / "pipelines" / "csv-findings", input=json.dumps({"input": {}, "steps": steps}).encode(),
                              capture_output=True, env=OUTSIDE, check=True)
        return json.loads(done.stdout)["output"].split("\n")

    def test_each_finding_is_a_line(self):
        self.assertEqual(self.listed(FOUND, left_out=4), ["t.csv: 3 rows, 2 columns, 2 findings", "medium  prix é: 2 values outside -12 to 23.5 (line 19, …)",
                                                          "low     b: 7 of 200 rows (3.5 %) (line 4, …)", "and 4 less severe ones"])

    def test_clean_data_is_one_line(self):
        self.assertEqual(self.listed([]), ["t.csv: 3 rows, 2 columns, no findings"])

    def test_names_out_of_the_table_cannot_steer_the_terminal(self):
        (head, line) = self.listed([{**FOUND[0], "column": "a\x1b[31m\nb"}], name="\x1b]0;x\x07.csv")
        self.assertNotIn("\x1b", head + line)


class Report(Case):
    def report(self, found, explained):
        steps = {"profile": {"output": self.output("profile_csv.py", {"input": {}})}, "find_problems": {"output": found}, "explain": {"output": explained}}
        return self.output("report.py", {"input": {}, "steps": steps})

    def test_findings_and_explanations_are_joined(self):
        found = self.report({"findings": FOUND, "left_out": 1}, answer(first="*Bold* <b>\n# claim"))
        self.assertEqual((found["findings"][0]["explanation"], found["counts"]), ("*Bold* <b>\n# claim", {"high": 0, "medium": 1, "low": 1}))
        self.assertIn("\\*Bold\\* &lt;b&gt; \\# claim", found["markdown"])
        self.assertIn("Left out, because they are less severe: 1.", found["markdown"])
        self.assertIn("| unit\\_price | number | 199 | 1 |", found["markdown"])

    def test_clean_data_gives_a_report_without_a_model(self):
        found = self.report({"findings": [], "left_out": 0}, None)
        self.assertEqual((found["findings"], found["summary"]), ([], "No problems were found."))


if __name__ == "__main__":
    unittest.main()
