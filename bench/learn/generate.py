#!/usr/bin/env python3
"""Writes 1,000 made-up traces of 20 calls, and measures how long `etude learn` takes over them and how much memory (L-35).

    bench/learn/generate.py --etude PROGRAM [--traces 1000] [--keep DIRECTORY] [--check]

The shop is that of no one: every trace is a customer who is found, 17 reads (orders, products, rates), and two writes, in one of four
families, so that 500 traces belong to each of two families. Linux or macOS; the figures are those of the kernel."""

import argparse
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

READS = {"find_user": ["email"], "get_order": ["order_id"], "get_product": ["product_id"], "get_rate": ["code"]}
WRITES = {"return_items": ["order_id", "item_ids", "refund_to"], "cancel_order": ["order_id", "reason"], "tag_order": ["order_id", "tag"], "set_address": ["user_id", "street", "city"]}
CALLS = 20
MOST_SECONDS, MOST_MIB = 10, 300
CODES = ["EUR", "USD", "GBP", "JPY"]
STREETS = ["Mill Lane", "High Street", "Station Road", "Canal Walk"]


def write_app(directory):
    """An app with these tools; none of them is started."""
    (directory / "tools").mkdir(parents=True)
    (directory / "SKILL.md").write_text("---\nname: shop\ndescription: A shop.\n---\nReturn with return_items, cancel with cancel_order.\n")
    for name, arguments in {**READS, **WRITES}.items():
        kinds = {argument: {"type": "array", "items": {"type": "string"}} if argument == "item_ids" else {"type": "string"} for argument in arguments}
        sidecar = {
            "name": name,
            "description": f"The tool {name}.",
            "inputSchema": {"type": "object", "properties": kinds, "required": arguments},
            "command": "false",
            "gated": name in WRITES,
            "effects": name in WRITES,
        }
        (directory / "tools" / f"{name}.yaml").write_text(json.dumps(sidecar))


class Shop:
    """What one trace sees, made up by a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seed = seed
        self.orders = [self.order(k) for k in range(4)]
        self.user = {
            "user_id": f"u_{seed}",
            "email": f"user{seed}@example.com",
            "orders": [order["order_id"] for order in self.orders],
            "cards": [{"card_id": f"card_{seed}_{k}", "kind": kind} for k, kind in enumerate(["visa", "gift"])],
            "address": {"street": f"{seed} {self.random.choice(STREETS)}", "city": f"Town {seed % 97}"},
        }

    def order(self, k):
        items = [{"item_id": f"it-{self.seed}-{k}-{i}", "product_id": f"pr-{self.random.randrange(400)}", "name": f"thing {self.random.randrange(60)}"} for i in range(5)]
        return {"order_id": f"ORD-{self.seed}-{k}", "user_id": f"u_{self.seed}", "status": "delivered" if k % 2 == 0 else "pending", "items": items}

    def trace(self):
        kind = self.seed % 4
        order = self.orders[(0, 1, 2, 3)[kind]]
        items = self.random.sample(order["items"], 2)
        card = self.random.choice(self.user["cards"])
        events = [call("find_user", {"email": self.user["email"]}, self.user)]
        reads = [call("get_order", {"order_id": each["order_id"]}, each) for each in self.orders]
        for each in [item for every in self.orders for item in every["items"]]:
            product = {"product_id": each["product_id"], "name": each["name"], "stock": self.random.randrange(40), "variants": [f"v{n}" for n in range(6)]}
            reads.append(call("get_product", {"product_id": each["product_id"]}, product))
        self.random.shuffle(reads)
        # The order that is written to is always among the reads.
        reads.sort(key=lambda event: event["arguments"].get("order_id") != order["order_id"])
        events += reads[: CALLS - 3]
        names = " and ".join(item["name"] for item in items)
        if kind % 2 == 0:
            request = f"Return {names} of {order['order_id']} to my {card['kind']} card. I am {self.user['email']}."
            given = {"order_id": order["order_id"], "item_ids": [item["item_id"] for item in items], "refund_to": card["card_id"]}
            events.append(call("return_items", given, {**order, "status": "returned"}))
        else:
            request = f"Cancel {order['order_id']} of {self.user['email']}, it is no longer needed."
            events.append(call("cancel_order", {"order_id": order["order_id"], "reason": "no longer needed"}, {**order, "status": "cancelled"}))
        if kind < 2:
            request += f" Tag it {CODES[self.seed % 3]}."
            events.append(call("tag_order", {"order_id": order["order_id"], "tag": CODES[self.seed % 3]}, {"tag": CODES[self.seed % 3]}))
        else:
            address = {"street": f"{self.seed + 7} {self.random.choice(STREETS)}", "city": f"Port {self.seed % 89}"}
            request += f" And my new address is {address['street']}, {address['city']}."
            events.append(call("set_address", {"user_id": self.user["user_id"], **address}, {**self.user, "address": address}))
        assert len(events) == CALLS
        return {"trace": 1, "run": f"run{self.seed:013}", "request": request, "skill": "shop", "events": events, "answer": "Done."}


def call(tool, arguments, result):
    return {"tool": tool, "arguments": arguments, "result": result}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--etude", required=True, type=pathlib.Path)
    parser.add_argument("--traces", type=int, default=1000)
    parser.add_argument("--keep", type=pathlib.Path, help="makes app and traces in this new directory, and keeps them")
    parser.add_argument("--check", action="store_true", help=f"exit status 1 above {MOST_SECONDS} s or {MOST_MIB} MiB; for a release build")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        place = args.keep or pathlib.Path(scratch)
        write_app(place / "app")
        file = place / "traces.jsonl"
        file.write_text("".join(json.dumps(Shop(seed).trace()) + "\n" for seed in range(args.traces)))
        (place / "home").mkdir()
        words = [args.etude.resolve(), "learn", "-C", place / "app", "--traces", file, "--model", "none", "--format", "json"]
        start = time.monotonic()
        ran = subprocess.run(words, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "HOME": str(place / "home")}, stdin=subprocess.DEVNULL, check=False)
        seconds = time.monotonic() - start
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ran.returncode != 0:
            sys.exit(f"error: `etude learn` exited with {ran.returncode}: {ran.stderr or ran.stdout}")
        document = json.loads(ran.stdout)
        peak = usage.ru_maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024)
        print(f"{document['traces']['usable']} of {document['traces']['read']} traces, {file.stat().st_size / 1e6:.1f} MB, {CALLS} calls each")
        print(f"{len(document['candidates'])} candidates: {', '.join(row['name'] for row in document['candidates'])}")
        print(f"{seconds:.1f} s, {usage.ru_utime + usage.ru_stime:.1f} s of processor, {peak:.0f} MiB at the most")
        if args.check and (seconds > MOST_SECONDS or peak > MOST_MIB):
            sys.exit(f"error: more than {MOST_SECONDS} s or {MOST_MIB} MiB")


if __name__ == "__main__":
    main()
