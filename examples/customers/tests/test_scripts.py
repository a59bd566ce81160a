"""The redactor with a stand-in for `etude host`, and the program of the package."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

APP = Path(__file__).resolve().parents[1]


class Redactor(unittest.TestCase):
    def passed(self, script):
        with tempfile.TemporaryDirectory() as place:
            stand_in = Path(place) / "etude"
            stand_in.write_text(f"#!/bin/sh\n{script}\n")
            stand_in.chmod(0o755)
            return subprocess.run(["sh", "hide-addresses.sh"], cwd=APP / "skills", input="{}", capture_output=True, text=True,
                                  env={**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}, check=False)

    def test_every_address_is_hidden(self):
        done = self.passed("""echo '["mei+shop@example.net.", "a@b"]'""")
        self.assertEqual(json.loads(done.stdout), {"result": ["(address).", "(address)"]})

    def test_a_throw_is_passed_on(self):
        self.assertEqual(self.passed("exit 1").returncode, 1)


class CustomerList(unittest.TestCase):
    def find(self, *words):
        done = subprocess.run([sys.executable, "app/find.py", *words], cwd=APP / "apps/customer-list", capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    def test_customers_are_found(self):
        self.assertEqual(self.find("find", "Bob"), (0, {"name": "Bob", "address": "bob.b@example.com", "orders": 1}))
        self.assertEqual(self.find("find", "Eve")[0], 4)
        self.assertEqual(self.find("list")[0], 2)


if __name__ == "__main__":
    unittest.main()
