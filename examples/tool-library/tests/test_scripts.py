"""The tool shed and the steps that use it, each run as the runner runs them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

APP = Path(__file__).resolve().parents[1]
PIPELINE = APP / "pipelines" / "overdue-letters"


class Case(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.root = Path(made.name) / "app"
        shutil.copytree(APP / "apps" / "tool-shed", self.root / "apps/tool-shed", ignore=shutil.ignore_patterns("state", "__pycache__"))
        self.shed = self.root / "apps/tool-shed"

    def run_shed(self, *args, status=0):
        done = subprocess.run([sys.executable, "app/shed.py", *args], cwd=self.shed, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def lend(self, label, to, due):
        item = self.run_shed("item", "add", "--label", label)["item"]["id"]
        return item, self.run_shed("loan", "open", item, "--to", to, "--due", due, "--today", "2026-05-01")["loan"]["id"]

    def step(self, name, request):
        done = subprocess.run([sys.executable, f"steps/{name}.py"], cwd=PIPELINE, input=json.dumps(request), capture_output=True,
                              text=True, env={**os.environ, "ETUDE_APP_DIR": str(self.root)}, check=False)
        return done.returncode, json.loads(done.stdout)["output"] if done.returncode == 0 else done.stderr


class Shed(Case):
    def test_lending_and_taking_back(self):
        item, loan = self.lend("Ladder", "Ada", "2026-05-08")
        self.assertEqual((item, loan), ("itm-0001", "ln-0001"))
        self.assertEqual(self.run_shed("loan", "open", item, "--to", "Bob", "--due", "2026-06-01", status=5)["error"]["code"], "E_STATE")
        closed = self.run_shed("loan", "close", loan, "--today", "2026-05-07")
        self.assertEqual((closed["loan"]["returnedOn"], closed["unchanged"]), ("2026-05-07", False))
        self.assertTrue(self.run_shed("loan", "close", loan)["unchanged"])
        self.assertEqual(self.run_shed("item", "list", "--status", "shelf")["count"], 1)

    def test_ids_are_never_given_twice(self):
        self.lend("Ladder", "Ada", "2026-05-08")
        self.assertEqual(self.run_shed("ledger", "reset", status=2)["error"]["code"], "E_CONFIRM")
        self.assertEqual(self.run_shed("ledger", "reset", "--confirm")["removed"], {"items": 1, "loans": 1})
        self.assertEqual(self.lend("Saw", "Bob", "2026-05-09"), ("itm-0002", "ln-0002"))

    def test_what_is_lent_is_not_retired(self):
        item, loan = self.lend("Ladder", "Ada", "2026-05-08")
        self.assertEqual(self.run_shed("item", "retire", item, "--confirm", status=5)["error"]["code"], "E_STATE")
        self.run_shed("loan", "close", loan)
        self.assertEqual(self.run_shed("item", "retire", item, "--confirm")["item"]["status"], "retired")

    def test_wrong_arguments_are_answered_in_json(self):
        for args in (["item"], ["item", "add"], ["loan", "open", "x", "--to", "A", "--due", "soon"], ["item", "list", "--status", "lost"]):
            self.assertEqual(self.run_shed(*args, status=2)["error"]["code"], "E_ARG")
        self.assertEqual(self.run_shed("loan", "close", "ln-0009", status=4)["error"]["code"], "E_NOT_FOUND")

    def test_a_damaged_ledger_is_left_alone(self):
        (self.shed / "app/state").mkdir()
        ledger = self.shed / "app/state/ledger.json"
        ledger.write_text("{")
        self.assertEqual(self.run_shed("item", "add", "--label", "x", status=6)["error"]["code"], "E_CORRUPT")
        self.assertEqual(ledger.read_text(), "{")


class Steps(Case):
    def test_late_borrowers_get_one_letter_each(self):
        self.lend("Ladder", "Ada", "2026-05-08")
        self.lend("Saw", "Ada", "2026-05-03")
        self.lend("Drill", "Bob", "2026-06-20")
        status, overdue = self.step("overdue", {"input": {"as_of": "2026-06-01"}, "steps": {}})
        self.assertEqual((status, [row["label"] for row in overdue]), (0, ["Saw", "Ladder"]))
        _, letters = self.step("letters", {"input": {}, "steps": {"overdue": {"output": overdue}}})
        self.assertEqual([letter["to"] for letter in letters], ["Ada"])
        self.assertIn("Saw (itm-0002), due 2026-05-03, 29 days late", letters[0]["text"])

    def test_the_shed_s_own_error_is_the_step_s(self):
        status, message = self.step("overdue", {"input": {"as_of": "soon"}, "steps": {}})
        self.assertEqual(status, 1)
        self.assertIn("E_ARG", message)


if __name__ == "__main__":
    unittest.main()
