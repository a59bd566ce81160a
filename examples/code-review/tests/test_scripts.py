"""The scripts of this app, each run as the runner runs it: JSON on stdin, in the pipeline's directory."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

APP = Path(__file__).resolve().parents[1]
IDENTITY = {"GIT_AUTHOR_NAME": "T", "GIT_AUTHOR_EMAIL": "t@example.org", "GIT_COMMITTER_NAME": "T", "GIT_COMMITTER_EMAIL": "t@example.org",
            "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
# These tests say themselves where etude was called, also when they are run by a step of etude.
OUTSIDE = {name: value for name, value in os.environ.items() if name != "ETUDE_CALLER_DIR"}


def run(script, request, pipeline="code-review", env=None, raw=None):
    """The finished process of a step script."""
    data = json.dumps(request).encode() if raw is None else raw
    return subprocess.run([sys.executable, f"steps/{script}"], cwd=APP / "pipelines" / pipeline, input=data, capture_output=True, env={**OUTSIDE, **(env or {})}, check=False)


class Case(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.root = Path(made.name)
        self.repo = self.root / "repo"

    def git(self, *args):
        return subprocess.run(["git", "-C", self.repo, *args], env={**os.environ, **IDENTITY}, capture_output=True, check=True).stdout.decode().strip()

    def commit(self, files, remove=()):
        """A commit with these files, content by name; makes the repository if need be."""
        if not self.repo.exists():
            self.repo.mkdir()
            self.git("init", "-q", "-b", "main", ".")
        for name, content in files.items():
            path = os.path.join(os.fsencode(self.repo), os.fsencode(name))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        for name in remove:
            (self.repo / name).unlink()
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")
        return self.git("rev-parse", "HEAD")

    def output(self, script, request, **more):
        done = run(script, request, **more)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)["output"]

    def error(self, script, request, **more):
        done = run(script, request, **more)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, b"")
        words = done.stderr.decode()
        self.assertNotIn("Traceback", words)
        return words

    def fetch(self, **params):
        return self.output("fetch_diff.py", {"input": {"repo": str(self.repo), **params}})


class FetchDiff(Case):
    def test_lines_carry_the_numbers_of_the_new_file(self):
        self.commit({"a.py": "one\ntwo\nthree\n"})
        self.commit({"a.py": "one\n2\nthree\nfour\n"})
        found = self.fetch()
        (entry,) = found["files"]
        self.assertEqual(entry["diff"].splitlines(), ["@@ from line 1", "     1   one", "       - two", "     2 + 2", "     3   three", "     4 + four"])
        self.assertEqual((entry["hunks"], entry["added"], entry["removed"], entry["status"], entry["truncated"]), ([[1, 4]], 2, 1, "modified", False))
        self.assertIn('### file: "a.py" (modified, +2 -1)\n@@ from line 1\n', found["text"])

    def test_a_range_without_changes_is_no_error(self):
        self.commit({"a": "1\n"})
        found = self.fetch(range="HEAD..HEAD")
        self.assertEqual((found["files"], found["skipped"], found["text"]), ([], [], ""))

    def test_a_root_commit_is_compared_with_nothing(self):
        self.commit({"a": "1\n"})
        found = self.fetch(range="HEAD")
        self.assertEqual((found["base"], found["files"][0]["status"]), (None, "added"))

    def test_a_single_commit_and_three_dots_are_ranges(self):
        base = self.commit({"a": "1\n"})
        self.git("checkout", "-q", "-b", "feature")
        self.commit({"b": "2\n"})
        self.git("checkout", "-q", "main")
        self.commit({"c": "3\n"})
        self.assertEqual([e["file"] for e in self.fetch(range="feature")["files"]], ["b"])
        since = self.fetch(range="main...feature")
        self.assertEqual((since["base"], [e["file"] for e in since["files"]]), (base, ["b"]))
        self.assertEqual([(e["file"], e["status"]) for e in self.fetch(range="main..feature")["files"]], [("b", "added"), ("c", "deleted")])

    def test_what_has_no_text_is_skipped_with_its_reason(self):
        self.commit({"logo.png": b"\x89PNG\0one", "run": "#!/bin/sh\n", "old": "same\n" * 5})
        (self.repo / "run").chmod(0o755)
        self.commit({"logo.png": b"\x89PNG\0two", "empty": "", "new": "same\n" * 5}, remove=["old"])
        found = self.fetch()
        self.assertEqual(found["files"], [])
        self.assertEqual({e["file"]: e["reason"] for e in found["skipped"]},
                         {"logo.png": "binary file", "run": "only its mode changed", "empty": "empty file", "new": "renamed without a change"})

    def test_a_renamed_and_changed_file_names_both(self):
        body = "".join(f"line {n}\n" for n in range(20))
        self.commit({"old name.txt": body})
        self.commit({"sub/new.txt": body + "more\n"}, remove=["old name.txt"])
        (entry,) = self.fetch()["files"]
        self.assertEqual((entry["file"], entry["old_file"], entry["status"], entry["added"], entry["hunks"]), ("sub/new.txt", "old name.txt", "renamed", 1, [[18, 21]]))

    def test_a_file_that_became_a_symbolic_link_is_read(self):
        self.commit({"a": "text\n"})
        (self.repo / "a").unlink()
        (self.repo / "a").symlink_to("elsewhere")
        self.commit({})
        (entry,) = self.fetch()["files"]
        self.assertEqual((entry["status"], entry["diff"].splitlines()[1:]), ("type changed", ["       - text", "@@ from line 1", "     1 + elsewhere"]))

    def test_hostile_file_names_survive(self):
        names = ["with space.txt", "ünï🙂.txt", "new\nline.txt", "-rf", 'quo"te.txt', ":(glob)*", "tab\t.txt"]
        self.commit({"x": "1\n"})
        self.commit({name: "1\n" for name in names})
        found = self.fetch()
        self.assertEqual(sorted(e["file"] for e in found["files"]), sorted(names))
        self.assertIn('### file: "new\\nline.txt" (added', found["text"])

    @unittest.skipUnless(sys.platform.startswith("linux"), "other systems refuse such names")
    def test_a_name_that_is_not_utf8_is_shown_escaped(self):
        self.commit({"x": "1\n"})
        self.commit({b"caf\xe9.txt": "1\n"})
        self.assertEqual(self.fetch()["files"][0]["file"], "caf\\xe9.txt")

    def test_content_that_looks_like_a_diff_is_content(self):
        self.commit({"a.sql": "-- x\nselect 1\n"})
        self.commit({"a.sql": "++ y\nselect 1\n@@ -1,9 +1,9 @@\ndiff --git a/q b/q\n"})
        self.assertEqual(self.fetch()["files"][0]["diff"].splitlines()[1:],
                         ["       - -- x", "     1 + ++ y", "     2   select 1", "     3 + @@ -1,9 +1,9 @@", "     4 + diff --git a/q b/q"])

    def test_control_and_bidi_characters_become_visible(self):
        self.commit({"a": "1\n"})
        self.commit({"a": "x\x1b[31m\u202e evil\n"})
        self.assertIn("x\\u{1b}[31m\\u{202e} evil", self.fetch()["text"])

    def test_a_huge_diff_is_cut_after_a_whole_line_and_says_so(self):
        self.commit({"a": "x\n"})
        self.commit({"a": "".join(f"line {n}\n" for n in range(200_000)), "b": "small\n"})
        found = self.fetch(max_file_chars=1000)
        big, small = found["files"]
        self.assertTrue(big["truncated"])
        self.assertLessEqual(len(big["diff"]), 1000)
        self.assertEqual(big["hunks"], [[1, int(big["diff"].splitlines()[-1].split()[0])]])
        self.assertEqual((big["added"], small["truncated"]), (200_000, False))
        self.assertIn("the rest is not shown", found["text"])

    def test_one_line_of_megabytes_is_cut(self):
        self.commit({"a": "x\n"})
        self.commit({"a": "y" * 3_000_000 + "\nend\n"})
        text = self.fetch()["text"]
        self.assertLess(len(text), 1000)
        self.assertIn("(long line cut)", text)
        self.assertIn("     2 + end", text)

    def test_the_total_and_the_number_of_files_are_bounded(self):
        self.commit({"x": "1\n"})
        self.commit({f"f{n}": "word\n" * 50 for n in range(6)})
        found = self.fetch(max_total_chars=1200, max_file_chars=600)
        self.assertLessEqual(sum(len(e["diff"]) for e in found["files"]), 1200)
        self.assertEqual(len(found["files"]) + len(found["skipped"]), 6)
        self.assertIn("`max_total_chars` = 1200", found["skipped"][-1]["reason"])
        self.assertEqual(len(self.fetch(max_files=2)["files"]), 2)

    def test_the_users_configuration_does_not_change_the_diff(self):
        self.commit({"a": "1\n\n2\n"})
        self.commit({"a": "1\n\n3\n"})
        before = self.fetch()
        for key, value in (("diff.noprefix", "true"), ("color.ui", "always"), ("diff.external", "false"), ("diff.context", "0"), ("diff.suppressBlankEmpty", "true")):
            self.git("config", key, value)
        self.assertEqual(self.fetch(), before)

    def test_the_environment_of_a_git_hook_does_not_change_the_repository(self):
        self.commit({"a": "1\n"})
        self.commit({"a": "2\n"})
        found = self.output("fetch_diff.py", {"input": {"repo": str(self.repo)}}, env={"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere"})
        self.assertEqual(len(found["files"]), 1)

    def test_ranges_that_mean_nothing_are_refused_with_a_reason(self):
        self.commit({"a": "1\n"})
        for text, words in (("HEAD~1..HEAD", "`HEAD~1` names no commit"), ("nope", "`nope` names no commit"), ("--output=/tmp/x", "give commits"), ("a b", "give commits"),
                            ("", "give commits"), ("HEAD:a", "names no commit")):
            with self.subTest(text):
                self.assertIn(words, self.error("fetch_diff.py", {"input": {"repo": str(self.repo), "range": text}}))

    def test_places_that_are_no_repository_are_refused_with_a_reason(self):
        (self.root / "file").write_text("x")
        (self.root / "plain").mkdir()
        for repo, words in ((str(self.root / "gone"), "does not exist"), (str(self.root / "file"), "is not a directory"), (str(self.root / "plain"), "no git repository"),
                            ("gone", "does not exist"), ("../gone", "does not exist"), ("~/gone/gone", "does not exist"), ("a\0b", "NUL")):
            with self.subTest(repo):
                self.assertIn(words, self.error("fetch_diff.py", {"input": {"repo": repo}}))

    def test_a_relative_path_begins_where_etude_was_called(self):
        self.commit({"a": "1\n", "sub/b": "1\n"})
        self.commit({"a": "2\n"})
        for called_in, repo in ((self.repo, ""), (self.repo, "."), (self.repo / "sub", ""), (self.repo / "sub", ".."), (self.root, "repo"), (self.root, "repo/sub")):
            with self.subTest(called_in=called_in, repo=repo):
                found = self.output("fetch_diff.py", {"input": {"repo": repo}}, env={"ETUDE_CALLER_DIR": str(called_in)})
                self.assertEqual([e["file"] for e in found["files"]], ["a"])
        found = self.output("fetch_diff.py", {"input": {"repo": "~/repo"}}, env={"HOME": str(self.root), "ETUDE_CALLER_DIR": "/"})
        self.assertEqual(len(found["files"]), 1)

    def test_a_runner_that_does_not_say_where_it_was_called_means_the_app(self):
        found = self.output("fetch_diff.py", {"input": {"repo": "tests/fixture.git", "range": "main~1..main"}})
        self.assertEqual([e["file"] for e in found["files"]], ["GUIDE.md", "bin/backup", "shop/orders.py"])

    def test_stdin_that_is_no_request_is_refused(self):
        for raw in (b"", b"[]", b"{", b"\xff", b"[" * 100_000):
            with self.subTest(raw[:5]):
                self.assertIn("stdin", self.error("fetch_diff.py", None, raw=raw))
        self.assertIn("input `repo` is 5, not a string", self.error("fetch_diff.py", {"input": {"repo": 5}}))
        self.assertIn("input `max_files` is true, not a whole number", self.error("fetch_diff.py", {"input": {"repo": str(APP), "max_files": True}}))


DIFF = {"repository": "r", "range": "a..b", "base": "1" * 40, "head": "2" * 40, "skipped": [{"file": "logo.png", "status": "added", "reason": "binary file"}], "text": "",
        "files": [{"file": "a.py", "old_file": None, "status": "modified", "added": 2, "removed": 1, "truncated": True, "hunks": [[3, 9], [20, 20]], "diff": "     3 + def connect(path):"},
                  {"file": "gone.py", "old_file": None, "status": "deleted", "added": 0, "removed": 4, "truncated": False, "hunks": [], "diff": "       - x = 1"}]}


def issue(**more):
    return {"severity": "low", "line": 3, "title": "t", "detail": "d", **more}


def analysis(a=(), gone=()):
    return {"files": [{"file": "a.py", "summary": "s", "issues": list(a)}, {"file": "gone.py", "summary": "s", "issues": list(gone)}]}


class Validate(Case):
    def verdict(self, output):
        done = run("validate_analysis.py", {"output": output, "input": {}, "steps": {"fetch_diff": {"output": DIFF}}})
        told = json.loads(done.stdout)
        self.assertEqual((done.returncode == 0, not told.get("errors")), (told["valid"], told["valid"]))
        return told.get("errors", [])

    def test_an_analysis_of_every_file_passes(self):
        detail = "connect(path) never closes the file; close it in a finally block."
        self.assertEqual(self.verdict(analysis([issue(), issue(line=20), issue(line=None), issue(severity="high", detail=detail)], [issue(line=None)])), [])

    def test_missing_foreign_and_repeated_files_are_named(self):
        entries = [{"file": "a.py", "summary": "s", "issues": []}] * 2 + [{"file": "b.py", "summary": "s", "issues": []}]
        self.assertEqual([e.split(";")[0] for e in self.verdict({"files": entries})],
                         ['file "a.py" is analysed 2 times', 'file "b.py" is not in the diff', 'file "gone.py" is in the diff but not in the analysis'])

    def test_a_line_outside_the_diff_is_rejected_with_the_ranges(self):
        (error,) = self.verdict(analysis([issue(line=12)]))
        self.assertIn("line 12 is not in the diff; use a line number within 3-9, 20, or null", error)
        (error,) = self.verdict(analysis(gone=[issue(line=1)]))
        self.assertIn("set line to null", error)

    def test_a_serious_issue_needs_a_specific_detail(self):
        (error,) = self.verdict(analysis([issue(severity="critical", detail="It is wrong.")]))
        self.assertIn("needs a specific detail of at least 40 characters", error)
        (error,) = self.verdict(analysis([issue(severity="high", detail="Something could possibly go badly wrong here, better check twice.")]))
        self.assertIn("names nothing that occurs in the diff", error)
        self.assertEqual(self.verdict(analysis([issue(severity="medium", detail="It is wrong.")])), [])

    def test_without_the_diff_the_validator_is_broken_not_the_answer(self):
        self.assertIn("no output of step `fetch_diff`", self.error("validate_analysis.py", {"output": analysis(), "steps": {}}))


class Report(Case):
    def steps(self, answer):
        steps = {"fetch_diff": {"output": DIFF}, "analyze_files": {"output": answer}}
        steps["calc_stats"] = {"output": self.output("calc_stats.py", {"input": {}, "steps": steps})}
        return steps

    def report(self, answer):
        return self.output("gen_report.py", {"input": {}, "steps": self.steps(answer)})

    def test_counts_and_order_of_issues(self):
        found = self.report(analysis([issue(title="minor"), issue(severity="critical", title="worst", line=None)], [issue(severity="medium", line=None)]))
        stats = found["stats"]
        self.assertEqual((stats["issues"], stats["worst"], stats["by_severity"], stats["files_with_issues"]), (3, "critical", {"critical": 1, "high": 0, "medium": 1, "low": 1}, 2))
        self.assertEqual((stats["files"], stats["skipped"], stats["truncated"], stats["lines_added"], stats["lines_removed"]), (2, 1, 1, 2, 5))
        markdown = found["markdown"]
        self.assertLess(markdown.index("worst"), markdown.index("minor"))
        self.assertIn("**low** `a.py:3` minor", markdown)
        self.assertIn("- `logo.png` (added): binary file", markdown)
        self.assertIn("The diff of 1 file was cut", markdown)

    def test_a_skipped_analysis_gives_an_empty_report(self):
        empty = {**DIFF, "files": [], "skipped": []}
        steps = {"fetch_diff": {"output": empty}, "analyze_files": {"output": None}}
        steps["calc_stats"] = {"output": self.output("calc_stats.py", {"input": {}, "steps": steps})}
        found = self.output("gen_report.py", {"input": {}, "steps": steps})
        self.assertIn("nothing to review", found["markdown"])
        self.assertEqual((found["stats"]["files"], found["stats"]["worst"]), (0, None))

    def test_text_of_a_model_cannot_become_structure(self):
        markdown = self.report(analysis([issue(title="# h\n<script>", detail="a | [x](y)\n\n- b")]))["markdown"]
        self.assertIn("\\# h &lt;script&gt;", markdown)
        self.assertIn("a \\| \\[x\\](y) - b", markdown)


class Scope(Case):
    RUN = {"id": "run-1", "pipeline": "code-review"}

    def setUp(self):
        super().setUp()
        self.commit({"a": "1\n"})
        self.commit({"a": "2\n"})
        self.env = {"XDG_STATE_HOME": str(self.root / "state")}
        self.state = self.root / "state" / "etude-examples" / "code-review"

    def constructor(self, script, run_id="run-1", steps=None):
        return run(script, {"input": {"repo": str(self.repo), "range": "HEAD~1..HEAD"}, "steps": steps or {}, "run": {**self.RUN, "id": run_id}}, "_constructor", self.env)

    def lock(self, run_id="run-1"):
        found = json.loads(self.constructor("check_range.py").stdout)
        return self.constructor("take_lock.py", run_id, {"check_range": found})

    def destructor(self, script, run_id="run-1", **more):
        return run(script, {"input": {"range": "x"}, "steps": {}, "run": {**self.RUN, "id": run_id}, "status": "succeeded", "error": None, **more}, "_destructor", self.env)

    def locks(self):
        return list((self.state / "locks").iterdir())

    def test_tools_are_found(self):
        self.assertIn("git version", json.loads(self.constructor("check_tools.py").stdout)["output"]["git"])

    def test_a_missing_git_is_named(self):
        self.assertIn("`git` is not in PATH", self.error("check_tools.py", {}, pipeline="_constructor", env={"PATH": str(self.root)}))

    def test_a_lock_is_taken_again_by_its_run_and_refused_to_another(self):
        self.assertEqual(self.lock().returncode, 0)
        self.assertEqual(self.lock().returncode, 0)
        other = self.lock("run-2")
        self.assertEqual(other.returncode, 1)
        self.assertIn("run run-1 (process", other.stderr.decode())
        self.assertEqual(len(self.locks()), 1)

    def test_a_lock_of_a_dead_runner_gives_way(self):
        self.lock()
        (path,) = self.locks()
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        path.write_text(json.dumps({"run": "old", "runner_pid": gone.pid}))
        self.assertIn("left over", self.lock("run-2").stderr.decode())
        self.assertEqual(json.loads(path.read_text())["run"], "run-2")

    def test_a_lock_that_cannot_be_read_is_not_deleted(self):
        self.lock()
        (path,) = self.locks()
        path.write_text("?")
        self.assertIn("is not one of this app", self.lock("run-2").stderr.decode())

    def test_the_destructor_removes_the_lock_of_its_run_only(self):
        self.lock()
        self.assertEqual(json.loads(self.destructor("release_lock.py", "run-2").stdout)["output"]["released"], [])
        self.assertEqual(len(self.locks()), 1)
        self.assertEqual(len(json.loads(self.destructor("release_lock.py").stdout)["output"]["released"]), 1)
        self.assertEqual(self.locks(), [])
        self.assertEqual(self.destructor("release_lock.py").returncode, 0)

    def test_the_run_log_has_one_line_per_run(self):
        self.destructor("log_run.py")
        self.destructor("log_run.py", "run-2", status="failed", error={"kind": "step_failed", "step": "fetch_diff", "message": "m\nn"})
        lines = [json.loads(line) for line in (self.state / "runs.jsonl").read_text().splitlines()]
        self.assertEqual([(line["run"], line["status"], line["error"]) for line in lines],
                         [("run-1", "succeeded", None), ("run-2", "failed", {"kind": "step_failed", "step": "fetch_diff"})])

    def test_a_state_directory_that_cannot_be_made_is_named(self):
        (self.root / "file").write_text("")
        self.env = {"XDG_STATE_HOME": str(self.root / "file")}
        self.assertIn("set XDG_STATE_HOME", self.lock().stderr.decode())


class Tools(Case):
    def test_read_diff_prints_what_the_pipeline_reads(self):
        self.commit({"a": "1\n"})
        self.commit({"a": "2\n", "b.bin": b"\0"})
        done = subprocess.run([sys.executable, APP / "tools" / "read_diff.py", "--repo", str(self.repo)], capture_output=True, check=True)
        self.assertIn('### file: "a" (modified, +1 -1)', done.stdout.decode())
        self.assertIn("not shown: 'b.bin' (added): binary file", done.stdout.decode())

    def test_no_script_leaves_files_in_the_app(self):
        self.assertEqual([path for path in APP.rglob("__pycache__") if "tests" not in path.parts], [])


if __name__ == "__main__":
    unittest.main()
