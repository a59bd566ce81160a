"""The scripts of the machine, without a machine."""
import importlib.util
import json
import pathlib
import sys
import unittest

SCRIPTS = pathlib.Path(__file__).parents[1] / "machines/change/scripts"
sys.path.insert(0, str(SCRIPTS))
TASK = "Basket.total ignores how many of an item are bought"


def script(name):
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Guard(unittest.TestCase):
    def decision(self, tool, path):
        return script("only_the_shop").judge({"toolId": tool, "args": {"path": path}})["decision"]

    def test_files_are_written_below_the_shop_only(self):
        self.assertEqual(self.decision("Edit", "shop/basket.py"), "allow")
        self.assertEqual(self.decision("Write", "shop/../tools/run_tests.py"), "deny")
        self.assertEqual(self.decision("Read", "README.md"), "allow")


class Setup(unittest.TestCase):
    def told(self, stage, upstream=(), files=None):
        return script("tell").told(stage, TASK, upstream, {"shop/a.py": "a = 1\n"}, files or {"shop/a.py": "a = 2\n"})

    def test_who_plans_and_who_changes_sees_the_files(self):
        for stage, upstream in (("plan", ()), ("implement", [{"output": {"steps": ["count"]}}])):
            self.assertIn("shop/a.py:\n```python\na = 2\n```", self.told(stage, upstream)["files"])
        self.assertEqual(self.told("implement", upstream)["plan"], "- count")

    def test_a_prompt_has_room_for_so_much_only(self):
        files = {"shop/long.py": "x" * 20_000, "shop/short.py": "y"}
        told = self.told("plan", files=files)["files"]
        self.assertIn("shop/long.py: 20000 characters, not shown", told)
        self.assertIn("```python\ny\n```", told)

    def test_who_reviews_sees_the_change_and_what_was_said_of_it(self):
        tests = {"parsed": {"passed": False, "problems": ["it counts wrong"]}, "output": {"said": "no total"}}
        told = self.told("review", [tests, {"parsed": {"problems": []}, "output": {"said": ""}}])
        self.assertIn("-a = 1\n+a = 2", told["diff"])
        self.assertEqual((told["tests"], told["lint"]), ("They FAILED:\n- it counts wrong\n\nno total", "It found nothing."))

    def test_who_repairs_is_told_everything_that_was_found(self):
        tests = {"parsed": {"passed": False}, "output": {"said": "no total"}}
        lint = {"output": {"said": "a tab"}}
        output = script("to_repair").handed_on([tests, lint], {"problems": ["it is wrong"]})
        self.assertEqual(self.told("repair", [{"output": output}])["found"], "no total\n\na tab\n\n- it is wrong")


class Changed(unittest.TestCase):
    def test_a_change_is_seen_in_the_files(self):
        judge = script("something_changed").judge
        self.assertEqual(judge({"shop/a.py": "a"}, {"shop/a.py": "a"})["verdict"], "retry")
        self.assertEqual(judge({"shop/a.py": "a"}, {"shop/a.py": "b"})["verdict"], "ok")
        self.assertEqual(judge({}, {"shop/new.py": "b"})["verdict"], "ok")
        self.assertEqual(judge({"shop/a.py": "a"}, {"shop/a.py": "b"}, cap_hit=True)["verdict"], "retry")


class Reports(unittest.TestCase):
    def verdict(self, stage, tool, said, report, cap=False):
        call = {"role": "assistant", "toolCalls": [{"id": "1", "name": tool}]}
        messages = [call, {"role": "tool", "toolCallId": "1", "content": said}] if said else []
        act = {"capHit": cap, "parsed": report, "transcript": {"messages": messages}}
        return script("as_the_tool_said").judge(stage, act)["verdict"]

    def test_a_report_says_what_the_tool_said(self):
        passed, failed = json.dumps({"passed": True}), json.dumps({"passed": False})
        report = {"passed": True, "problems": []}
        self.assertEqual(self.verdict("test", "run_tests", passed, report), "ok")
        self.assertEqual(self.verdict("test", "run_tests", failed, report), "retry")
        self.assertEqual(self.verdict("test", "run_tests", "it broke", report), "retry")
        self.assertEqual(self.verdict("test", "run_tests", None, report), "retry")
        self.assertEqual(self.verdict("test", "run_tests", passed, None, cap=True), "retry")
        found = json.dumps({"problems": ["a tab"]})
        self.assertEqual(self.verdict("lint", "run_lint", found, {"problems": []}), "retry")
        self.assertEqual(self.verdict("lint", "run_lint", found, {"problems": ["a tab in a.py"]}), "ok")


class Review(unittest.TestCase):
    def verdict(self, approved, problems=(), passed=True, repairs=0):
        act = {"capHit": False, "parsed": {"approved": approved, "problems": list(problems)}}
        return script("judge_review").judge(act, passed, repairs)["verdict"]

    def test_only_what_passes_its_tests_is_approved(self):
        self.assertEqual(self.verdict(True), "ok")
        self.assertEqual(self.verdict(True, passed=False), "retry")

    def test_a_refusal_says_why(self):
        self.assertEqual(self.verdict(False), "retry")
        self.assertEqual(self.verdict(False, ["a tab"]), "ok")

    def test_two_repairs_at_most(self):
        self.assertEqual(self.verdict(False, ["a tab"], repairs=1), "ok")
        self.assertEqual(self.verdict(False, ["a tab"], repairs=2), "fail")
        self.assertEqual(self.verdict(True, repairs=2), "ok")


if __name__ == "__main__":
    unittest.main()
