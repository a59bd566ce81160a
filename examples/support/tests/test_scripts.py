"""The scripts of this app, each run as the runner runs it: JSON on stdin, in the pipeline's directory."""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

APP = Path(__file__).resolve().parents[1]


class Scripts(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.app = Path(made.name, "app")
        shutil.copytree(APP, self.app, ignore=shutil.ignore_patterns("outbox", "tests"))

    def run_script(self, script, request):
        pipeline = self.app / "pipelines" / "answer-mail"
        return subprocess.run([sys.executable, "-B", f"steps/{script}"], cwd=pipeline, input=json.dumps(request), capture_output=True, text=True, check=False)

    def output(self, script, **request):
        done = self.run_script(script, request)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def read(self, count=4):
        return self.output("read_mail.py", input={"count": count})["output"]

    def errors(self, reply, mail=0):
        verdict = self.output("keeps_the_rules.py", output={"reply": reply}, item=self.read()[mail])
        self.assertEqual(verdict["valid"], not verdict["errors"])
        return verdict["errors"]

    def drafted(self):
        mails = self.read(2)
        return {"read": {"output": mails}, "draft": {"output": [{"reply": "One."}, {"reply": "Two."}]}}

    def test_mails_come_with_their_orders(self):
        mails = self.read(3)
        self.assertEqual([mail["order"] for mail in mails], ["A-2042", "A-2077", "A-2080"])
        self.assertEqual(mails[0]["name"], "Lena")
        self.assertIn("Thursday", mails[0]["known"])

    def test_a_mail_without_an_order_is_not_answered(self):
        (self.app / "mail" / "5.txt").write_text("From: A B\nDate: 2026-09-17\nSubject: Hello\n\nA-9 is no order.\n")
        done = self.run_script("read_mail.py", {"input": {"count": 1}})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("5.txt: no order", done.stderr)

    def test_an_answer_passes_on_the_facts(self):
        self.assertEqual(self.errors("Your teapot waits at the customs office and arrives on Thursday."), [])
        self.assertEqual(self.errors("Your teapot arrives soon."), ["pass on the day: Thursday"])

    def test_an_answer_has_no_other_amount(self):
        self.assertEqual(self.errors("We returned 31.50 on Monday.", mail=2), [])
        self.assertEqual(self.errors("We returned 63.00 on Monday.", mail=2), ["the facts do not have the amount 63.00"])

    def test_an_answer_promises_nothing_else(self):
        for words in ["a refund", "a Discount", "compensation"]:
            self.assertRegex(self.errors(f"It arrives on Thursday, with {words}.")[0], "^promise no ")

    def test_an_answer_is_short_and_has_no_signature(self):
        self.assertEqual(self.errors("It arrives on Thursday. " * 12), ["48 words; at most 45"])
        self.assertEqual(self.errors("It arrives on Thursday. [Your Name]"), ["leave out '[Your Name]': the signature is added later"])
        self.assertEqual(self.errors("The shop says: on Thursday."), ["you are the shop: write `we` for 'The shop'"])
        self.assertEqual(self.errors("On Thursday. Contact us."), ["ask nothing of the customer: leave out 'Contact us'"])

    def test_the_sheet_has_all_answers(self):
        sheet = self.output("sheet.py", steps=self.drafted())["output"]
        self.assertEqual(sheet, "Send 2 answers?\n\nTo Lena Fischer, 'Where is my teapot?':\nOne.\n\nTo Priya Nair, 'One cup arrived broken':\nTwo.")

    def test_sending_twice_writes_the_same_files(self):
        first = self.output("send.py", steps=self.drafted())
        again = self.output("send.py", steps=self.drafted())
        self.assertEqual(first, again)
        self.assertEqual(first["output"], "outbox/1.txt  Lena Fischer: Re: Where is my teapot?\noutbox/2.txt  Priya Nair: Re: One cup arrived broken")
        text = (self.app / "outbox" / "1.txt").read_text()
        self.assertEqual(text, "To: Lena Fischer\nSubject: Re: Where is my teapot?\n\nHello Lena,\n\nOne.\n\nYour order: A-2042, teapot\nThe tea shop\n")


if __name__ == "__main__":
    unittest.main()
