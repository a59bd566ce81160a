"""The scripts of the machine, without a machine."""
import importlib.util
import pathlib
import unittest

SCRIPTS = pathlib.Path(__file__).parents[1] / "machines/change/scripts"


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


class Assert(unittest.TestCase):
    def verdict(self, *tools, cap=False):
        messages = [{"role": "assistant", "toolCalls": [{"name": tool}]} for tool in tools]
        return script("something_changed").judge({"capHit": cap, "transcript": {"messages": messages}})["verdict"]

    def test_a_change_needs_a_tool_that_changes(self):
        self.assertEqual(self.verdict("Read", "submit_change"), "retry")
        self.assertEqual(self.verdict("Read", "Edit", "submit_change"), "ok")
        self.assertEqual(self.verdict("Edit", cap=True), "retry")


class Next(unittest.TestCase):
    def after(self, approved, repairs):
        return script("after_review").after({"verdict": "ok", "parsed": {"approved": approved}}, {"data": {"repairs": repairs}})

    def test_two_repairs_at_most(self):
        self.assertEqual(self.after(True, 0), {"execution": "terminate"})
        self.assertEqual(self.after(False, 0)["nextStages"], ["repair"])
        self.assertEqual(self.after(False, 2), {"execution": "terminate"})


if __name__ == "__main__":
    unittest.main()
