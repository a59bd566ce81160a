"""The scripts of this app, each run as the runner runs it: JSON on stdin, in the pipeline's directory."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

APP = Path(__file__).resolve().parents[1]
PIPELINE = APP / "pipelines" / "doc-index"
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
        self.docs = self.root / "docs"
        self.docs.mkdir()

    def write(self, name, content="# Title\n\nText.\n"):
        path = os.path.join(os.fsencode(self.docs), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())

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

    def list(self, **params):
        return self.output("list_files.py", {"input": {"folder": str(self.docs), **params}})


class ListFiles(Case):
    def test_markdown_files_are_listed_in_order_with_their_text(self):
        for name in ("b.md", "a/z.MARKDOWN", "a.txt", ".hidden.md", ".git/x.md", "node_modules/p/README.md"):
            self.write(name)
        found = self.list()
        self.assertEqual([(e["path"], e["text"], e["truncated"]) for e in found["files"]], [("a/z.MARKDOWN", "# Title\n\nText.\n", False), ("b.md", "# Title\n\nText.\n", False)])

    def test_hostile_names_survive(self):
        names = ["with space.md", "ünï🙂.md", "new\nline.md", "-rf.md", 'q"uo`te.md']
        for name in names:
            self.write(name)
        self.assertEqual(sorted(e["path"] for e in self.list()["files"]), sorted(names))

    @unittest.skipUnless(sys.platform.startswith("linux"), "other systems refuse such names")
    def test_a_name_that_is_not_utf8_is_shown_escaped(self):
        self.write(b"caf\xe9.md")
        self.assertEqual(self.list()["files"][0]["path"], "caf\\xe9.md")

    def test_long_files_are_cut_between_characters(self):
        self.write("a.md", "ü" * 1000)
        (entry,) = self.list(max_chars=200)["files"]
        self.assertEqual((entry["text"], entry["truncated"], entry["bytes"]), ("ü" * 200, True, 2000))

    def test_files_that_cannot_be_described_are_named_with_the_reason(self):
        self.write("binary.md", b"\0\1")
        self.write("empty.md", " \n")
        self.write("good.md", b"\xef\xbb\xbf# A\xff")
        found = self.list()
        self.assertEqual([(e["path"], e["text"]) for e in found["files"]], [("good.md", "# A\ufffd")])
        self.assertEqual({e["path"]: e["reason"] for e in found["left_out"]}, {"binary.md": "holds NUL bytes; it is not text", "empty.md": "is empty"})

    def test_the_number_of_files_is_bounded(self):
        for number in range(5):
            self.write(f"{number}.md")
        found = self.list(max_files=2)
        self.assertEqual(([e["path"] for e in found["files"]], len(found["left_out"])), (["0.md", "1.md"], 3))

    def test_links_out_of_the_folder_are_not_followed(self):
        self.write("a.md")
        (self.docs / "loop").symlink_to(self.docs)
        (self.docs / "out.md").symlink_to("/etc/hostname")
        self.assertEqual([e["path"] for e in self.list()["files"]], ["a.md"])

    def test_a_relative_path_begins_where_etude_was_called(self):
        self.write("a.md")
        for folder, env in (("docs", {"ETUDE_CALLER_DIR": str(self.root)}), (".", {"ETUDE_CALLER_DIR": str(self.docs)}), ("~/docs", {"HOME": str(self.root)})):
            with self.subTest(folder):
                self.assertEqual([e["path"] for e in self.output("list_files.py", {"input": {"folder": folder}}, **env)["files"]], ["a.md"])

    def test_the_bundled_notes_are_meant_where_no_folder_is_given(self):
        found = self.output("list_files.py", {"input": {"folder": ""}}, ETUDE_CALLER_DIR=str(self.root))
        self.assertEqual(found["files"][0]["path"], "README.md")

    def test_places_without_documents_are_refused_with_a_reason(self):
        for folder, words in ((str(self.docs), "no Markdown file"), (str(self.root / "gone"), "does not exist"), ("gone", "does not exist"), ("a\0b", "give the path"), (str(APP / "README.md"), "is not a folder")):
            with self.subTest(folder):
                self.assertIn(words, self.error("list_files.py", {"input": {"folder": folder}}))


class CheckLinks(Case):
    def broken(self, text):
        self.write("sub/a.md", text)
        return [(e["line"], e["target"]) for e in self.output("check_links.py", {"input": {"folder": str(self.docs)}})["broken"]]

    def test_the_bundled_documents_have_one_broken_link(self):
        found = self.output("check_links.py", {"input": {}})["broken"]
        self.assertEqual([(e["file"], e["target"]) for e in found], [("formats/unified-diff.md", "../process/patches.md")])

    def test_links_that_lead_somewhere_are_fine(self):
        self.write("b c(1).md")
        text = "[a](../b%20c(1).md#x) ![i](<../b c(1).md>) [t](/sub/a.md \"title\") [p](#here) [w](https://example.org/x) [m](mailto:a@example.org) [self](a.md)"
        self.assertEqual(self.broken(text), [])

    def test_links_that_lead_nowhere_are_reported_with_their_line(self):
        self.assertEqual(self.broken("x\n\n[a](gone.md)\n[b](../gone/)\n"), [(3, "gone.md"), (4, "../gone/")])

    def test_links_in_code_are_no_links(self):
        self.assertEqual(self.broken("`[a](gone.md)`\n\n```md\n[b](gone.md)\n```\n\n[c](gone2.md)\n"), [(7, "gone2.md")])


def entry(**more):
    return {"title": "CSV", "summary": "What a CSV file promises and what it does.", "keywords": ["csv", "tables", "quotes"], **more}


class Validate(Case):
    def verdict(self, output, path="formats/csv.md"):
        done = run("validate_description.py", {"output": output, "input": {}, "steps": {}, "item": {"path": path}, "index": 0})
        told = json.loads(done.stdout)
        self.assertEqual(done.returncode == 0, told["valid"])
        return told.get("errors", [])

    def test_a_description_passes(self):
        self.assertEqual(self.verdict(entry()), [])

    def test_what_describes_nothing_is_rejected(self):
        self.assertIn("is the name of the file", self.verdict(entry(title="csv.md"))[0])
        self.assertIn("fewer than four words", self.verdict(entry(summary="A document."))[0])
        self.assertIn("only repeats the title", self.verdict(entry(title="How to read CSV files", summary="How to read CSV files."))[0])
        self.assertIn("'csv' stands there 2 times", self.verdict(entry(keywords=["csv", "CSV ", "x"]))[0])


class Index(Case):
    def build(self, described, **params):
        listed = {"files": [{"path": "a b/c.md", "bytes": 5, "text": "x", "truncated": False}, {"path": "d.md", "bytes": 6, "text": "y", "truncated": False}], "left_out": []}
        request = {"input": {"folder": str(self.docs), **params}, "steps": {"list_files": {"output": listed}, "describe": {"output": described}, "check_links": {"output": None}}}
        request["steps"]["build_index"] = {"output": self.output("build_index.py", request)}
        return request

    GOOD = {"output": entry(title="C [x] <b>", keywords=["CSV", "tables", "z"])}
    FAILED = {"error": {"kind": "validation_exhausted", "message": "rejected 3 times"}}

    def test_descriptions_become_links_and_failures_are_named(self):
        built = self.build([self.GOOD, self.FAILED])["steps"]["build_index"]["output"]
        self.assertIn("[C \\[x\\] &lt;b&gt;](a%20b/c.md): What a CSV", built["markdown"])
        self.assertIn("- d.md: rejected 3 times", built["markdown"])
        index = built["index"]
        self.assertEqual((index["keywords"]["csv"], index["not_described"][0]["path"], index["broken_links"]), (["a b/c.md"], "d.md", None))

    def test_the_index_is_written_whole_and_links_from_where_it_is(self):
        out = self.root / "out"
        request = self.build([self.GOOD, self.FAILED], out=str(out))
        for _ in range(2):
            self.output("write_index.py", request)
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["index.json", "index.md"])
        self.assertIn("](../docs/a%20b/c.md)", (out / "index.md").read_text())
        self.assertEqual(json.loads((out / "index.json").read_text())["documents"][0]["path"], "a b/c.md")

    def test_the_next_run_does_not_index_the_index(self):
        self.write("a.md")
        self.output("write_index.py", self.build([self.GOOD, self.FAILED], out=str(self.docs)))
        self.assertEqual([e["path"] for e in self.list()["files"]], ["a.md"])

    def test_a_place_that_cannot_be_written_is_named(self):
        (self.root / "file").write_text("")
        self.assertIn("`out`: cannot write into", self.error("write_index.py", self.build([self.GOOD, self.FAILED], out=str(self.root / "file" / "x"))))


if __name__ == "__main__":
    unittest.main()
