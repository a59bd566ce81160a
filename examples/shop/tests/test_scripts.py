"""The shop's tools and the scripts of its pipelines, by themselves: `python3 -B -m unittest discover -s tests`."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

APP = pathlib.Path(__file__).resolve().parent.parent


class Tools(unittest.TestCase):
    def setUp(self):
        """A copy of the shop: changes of a test stay in it."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.app = pathlib.Path(directory.name)
        for part in ("data", "tools"):
            shutil.copytree(APP / part, self.app / part, ignore=shutil.ignore_patterns("__pycache__"))

    def call(self, tool, **arguments):
        ran = subprocess.run(
            [sys.executable, "-B", "tools/shop.py"],
            input=json.dumps({"tool": tool, "args": arguments}),
            capture_output=True,
            text=True,
            cwd=self.app,
            check=True,
        )
        return json.loads(ran.stdout)

    def value(self, tool, **arguments):
        response = self.call(tool, **arguments)
        self.assertTrue(response["ok"], response)
        return response["value"]

    def refused(self, tool, **arguments):
        response = self.call(tool, **arguments)
        self.assertFalse(response["ok"], response)
        return response["error"]["message"]

    def test_customers_are_found_by_address(self):
        self.assertEqual(self.value("find_customer", email="Mei@example.org")["customer_id"], "c_mei")
        self.assertIn("nobody@example.org", self.refused("find_customer", email="nobody@example.org"))

    def test_a_read_leaves_no_state(self):
        self.value("get_order", order_id="T-1042")
        self.assertIn("T-1", self.refused("get_order", order_id="T-1"))
        self.assertFalse((self.app / "state").exists())

    def test_a_pending_order_is_cancelled_once(self):
        self.assertEqual(self.value("cancel_order", order_id="T-1051")["status"], "cancelled")
        self.assertEqual(self.value("get_order", order_id="T-1051")["status"], "cancelled")
        self.assertIn("is cancelled", self.refused("cancel_order", order_id="T-1051"))
        self.assertIn("is delivered", self.refused("cancel_order", order_id="T-1042"))

    def test_items_are_refunded_to_a_method_of_the_customer(self):
        order = self.value("return_items", order_id="T-1042", item_ids=["I-32", "I-31"], refund_to="pm_gift_12")
        self.assertEqual(order["refund"], {"to": "pm_gift_12", "cents": 5900 + 1450})
        self.assertEqual(order["returned"], ["I-31", "I-32"])
        self.assertIn("return requested", self.refused("return_items", order_id="T-1042", item_ids=["I-33"], refund_to="pm_gift_12"))

    def test_what_is_not_the_customers_is_refused(self):
        self.assertIn("I-36", self.refused("return_items", order_id="T-1042", item_ids=["I-36"], refund_to="pm_gift_12"))
        self.assertIn("pm_gift_15", self.refused("return_items", order_id="T-1042", item_ids=["I-31"], refund_to="pm_gift_15"))
        self.assertIn("no item", self.refused("return_items", order_id="T-1042", item_ids=[], refund_to="pm_gift_12"))
        self.assertIn("pending", self.refused("return_items", order_id="T-1051", item_ids=["I-34"], refund_to="pm_gift_12"))
        self.assertFalse((self.app / "state").exists())

    def test_the_shop_of_the_morning_is_whole(self):
        shop = json.loads((APP / "data" / "shop.json").read_text(encoding="utf-8"))
        customers = {customer["customer_id"]: customer for customer in shop["customers"]}
        for order in shop["orders"]:
            self.assertIn(order["order_id"], customers[order["customer_id"]]["orders"])
            self.assertIn(order["paid_with"], [method["method_id"] for method in customers[order["customer_id"]]["payment_methods"]])
        items = [item["item_id"] for order in shop["orders"] for item in order["items"]]
        self.assertEqual(len(items), len(set(items)))


class Answer(unittest.TestCase):
    def test_the_answer_names_items_and_status(self):
        order = {"order_id": "T-1", "status": "pending", "items": [{"name": "Sencha"}, {"name": "kettle"}]}
        script = APP / "pipelines" / "order-status" / "steps" / "answer.py"
        ran = subprocess.run([sys.executable, "-B", script], input=json.dumps({"steps": {"order": {"output": order}}}), capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(ran.stdout), {"output": "Order T-1 (Sencha, kettle) is pending."})


if __name__ == "__main__":
    unittest.main()
