"""The walk of README.md with recorded completions, as a user makes it. Needs the program: `ETUDE_BIN`, or `etude` on the path."""

import os
import pathlib
import shutil
import tempfile
import time
import unittest

import desk
import walk


@unittest.skipUnless(os.environ.get("ETUDE_BIN") or shutil.which("etude"), "there is no `etude`; set ETUDE_BIN")
class TheWalk(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.walk = walk.Walk(pathlib.Path(directory.name))

    def test_the_agent_serves_the_customers(self):
        documents = self.walk.skill_runs()
        self.assertEqual([document["usage"]["calls"] for document in documents], [4] * 7 + [3])
        self.assertIn("do not find", documents[-1]["output"])
        self.assertEqual(self.walk.order("T-1042")["refund"], {"to": "pm_gift_12", "cents": 2400})
        self.assertEqual(self.walk.order("T-1079")["returned"], ["I-37", "I-38"])
        self.assertEqual(self.walk.order("T-1125")["status"], "cancelled")

    def test_the_commands_of_the_page_run_from_recordings(self):
        ran = list(self.walk.page())
        self.assertGreater(len(ran), 10)
        for order_id in ("T-1051", "T-1273", "T-1384"):
            self.assertEqual(self.walk.order(order_id)["status"], "cancelled", "\n".join(ran))
        self.assertEqual(self.walk.etude("learn", "status")["pipelines"][0]["state"], "active")

    def test_a_pipeline_is_learned_and_does_the_task(self):
        model = desk.serve()
        self.addCleanup(model.server_close)
        self.addCleanup(model.shutdown)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        learning = walk.Walk(pathlib.Path(directory.name), walk.LIVE.format(port=model.server_address[1]))
        agent = learning.skill_runs()[walk.SKILL_RUNS.index(walk.CANCELLATIONS[0])]["usage"]
        learned = learning.etude("learn", "--config", "recorded.yaml")
        self.assertEqual([one["name"] for one in learned["candidates"]], ["cancel-order", "return-items"])
        self.assertTrue(all(test["passed"] for test in learning.etude("learn", "test", "--config", "recorded.yaml")["tests"]))
        learning.promote("cancel-order")
        learning.run("--skill", walk.SHADOWED)
        deadline = time.monotonic() + 60
        while (live := learning.evidence("cancel-order")["live"])["agreed"] == 0:
            self.assertLess(time.monotonic(), deadline, live)
            time.sleep(0.1)
        # Three requests prove little: the risk is accepted by name.
        self.assertEqual(learning.promote("cancel-order", "--accept-risk")["to"], "assisted")
        waiting = learning.etude("run", "--config", "recorded.yaml", walk.LEARNED, code=5)
        self.assertEqual((waiting["status"], waiting["pipeline"]), ("waiting", "cancel-order"))
        self.assertNotEqual(learning.order("T-1273")["status"], "cancelled")
        done = learning.etude("approve", waiting["run_id"], "--resume", "--config", "recorded.yaml")
        self.assertEqual((done["status"], learning.order("T-1273")["status"]), ("succeeded", "cancelled"))
        # The agent has four calls, each with everything before it; the pipeline asks for a parameter and for the permission.
        self.assertEqual((agent["calls"], done["usage"]["calls"]), (4, 2))
        self.assertLess(done["usage"]["input_tokens"] * 3, agent["input_tokens"])


if __name__ == "__main__":
    unittest.main()
