"""The shop's tools: one call, JSON in and JSON out. `data/shop.json` is the shop as it was in the morning; the first change copies it to
`state/shop.json`, which is the shop from then on. Remove `state` to start again."""

import json
import os
import pathlib
import sys

APP = pathlib.Path(__file__).resolve().parent.parent
MORNING = APP / "data" / "shop.json"
NOW = APP / "state" / "shop.json"


class Refused(Exception):
    """The shop does not do that; the message says why."""


def find_customer(shop, email):
    """The customer with this e-mail address."""
    for customer in shop["customers"]:
        if customer["email"].casefold() == email.casefold():
            return customer
    raise Refused(f"no customer has the address {email}")


def get_order(shop, order_id):
    """The order, with its items and its status."""
    for order in shop["orders"]:
        if order["order_id"] == order_id:
            return order
    raise Refused(f"there is no order {order_id}")


def cancel_order(shop, order_id):
    """Cancels a pending order; gives the order as it is then."""
    order = get_order(shop, order_id)
    if order["status"] != "pending":
        raise Refused(f"order {order_id} is {order['status']}; only a pending order can be cancelled")
    order["status"] = "cancelled"
    return order


def return_items(shop, order_id, item_ids, refund_to):
    """Takes items of a delivered order back; gives the order as it is then."""
    order = get_order(shop, order_id)
    if order["status"] != "delivered":
        raise Refused(f"order {order_id} is {order['status']}; only items of a delivered order are taken back")
    items = {item["item_id"]: item for item in order["items"]}
    unknown = [item_id for item_id in item_ids if item_id not in items]
    if unknown or not item_ids:
        raise Refused(f"order {order_id} has no item {', '.join(unknown) or 'without a number'}")
    if refund_to not in methods(shop, order["customer_id"]):
        raise Refused(f"{refund_to} is no payment method of the customer")
    order["status"] = "return requested"
    order["returned"] = sorted(item_ids)
    order["refund"] = {"to": refund_to, "cents": sum(items[item_id]["cents"] for item_id in item_ids)}
    return order


def methods(shop, customer_id):
    """The ids of the customer's payment methods."""
    return [method["method_id"] for customer in shop["customers"] if customer["customer_id"] == customer_id for method in customer["payment_methods"]]


READS = {"find_customer": find_customer, "get_order": get_order}
WRITES = {"cancel_order": cancel_order, "return_items": return_items}


def call(tool, arguments):
    """What the tool prints."""
    shop = json.loads((NOW if NOW.exists() else MORNING).read_text(encoding="utf-8"))
    try:
        value = {**READS, **WRITES}[tool](shop, **arguments)
    except Refused as refusal:
        return {"ok": False, "error": {"class": "ToolTerminal", "code": "Refused", "message": str(refusal)}}
    if tool in WRITES:
        keep(shop)
    return {"ok": True, "value": value}


def keep(shop):
    """Replaces the state in one step, so that a kill leaves the old one or the new one."""
    NOW.parent.mkdir(exist_ok=True)
    new = NOW.with_suffix(".new")
    new.write_text(json.dumps(shop, indent=1) + "\n", encoding="utf-8")
    os.replace(new, NOW)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps(call(asked["tool"], asked["args"])))
