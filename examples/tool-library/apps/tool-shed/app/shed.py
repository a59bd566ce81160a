"""The lending ledger of a tool library: one JSON object on stdout a command. See APP.md, the contract."""
import argparse
import contextlib
import datetime
import json
import os
import sys
from pathlib import Path

try:
    import fcntl
except ImportError:  # Not on Windows; there the atomic replacement has to do.
    fcntl = None

STATE = Path(__file__).resolve().parent / "state"
LEDGER = STATE / "ledger.json"
STATUSES = ("shelf", "out", "retired")
EXITS = {"E_ARG": 2, "E_CONFIRM": 2, "E_NOT_FOUND": 4, "E_STATE": 5, "E_CORRUPT": 6}


class Refused(Exception):
    """A command that is not carried out: code, message, what to do."""

    def __init__(self, code, message, hint=""):
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused("E_ARG", message, "APP.md lists the arguments of each command")


def day(text):
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is no day; write YYYY-MM-DD") from None


def parser():
    top = Parser(prog="shed.py", add_help=False)
    nouns = top.add_subparsers(dest="noun", required=True)
    common = Parser(add_help=False)
    common.add_argument("--human", action="store_true")
    common.add_argument("--today", type=day, default=None)
    verbs = {}

    def command(noun, verb):
        if noun not in verbs:
            verbs[noun] = nouns.add_parser(noun, add_help=False).add_subparsers(dest="verb", required=True)
        return verbs[noun].add_parser(verb, parents=[common], add_help=False)

    add = command("item", "add")
    add.add_argument("--label", required=True)
    add.add_argument("--deposit", type=int, default=0)
    command("item", "list").add_argument("--status", default=",".join(STATUSES))
    retire = command("item", "retire")
    retire.add_argument("id")
    retire.add_argument("--confirm", action="store_true")
    lend = command("loan", "open")
    lend.add_argument("id")
    lend.add_argument("--to", required=True)
    lend.add_argument("--due", type=day, required=True)
    command("loan", "close").add_argument("id")
    command("loan", "list").add_argument("--open", action="store_true")
    command("report", "overdue").add_argument("--as-of", dest="as_of", type=day, default=None)
    command("ledger", "reset").add_argument("--confirm", action="store_true")
    return top


def empty():
    return {"seq": {"item": 0, "loan": 0}, "items": {}, "loans": {}}


def load():
    if not LEDGER.exists():
        return empty()
    try:
        ledger = json.loads(LEDGER.read_text(encoding="utf-8"))
        if not all(isinstance(ledger[part], dict) for part in ("seq", "items", "loans")):
            raise ValueError("parts are missing")
        return ledger
    except (ValueError, KeyError, TypeError) as error:
        raise Refused("E_CORRUPT", f"the ledger cannot be read: {error}", "put back a copy of app/state/ledger.json") from None


def save(ledger):
    fresh = LEDGER.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(ledger, file, ensure_ascii=False, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(LEDGER)


@contextlib.contextmanager
def changing():
    """The ledger, for a change that nobody else comes between."""
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "ledger.lock").open("a") as lock:
        if fcntl:
            fcntl.flock(lock, fcntl.LOCK_EX)
        ledger = load()
        yield ledger
        save(ledger)


def number(ledger, kind, prefix):
    ledger["seq"][kind] += 1
    return f"{prefix}-{ledger['seq'][kind]:04}"


def find(ledger, part, key):
    if key not in ledger[part]:
        raise Refused("E_NOT_FOUND", f"there is no `{key}`", f"list them: {part[:-1]} list")
    return ledger[part][key]


def item_add(args, today):
    if not args.label.strip():
        raise Refused("E_ARG", "the label is empty")
    if args.deposit < 0:
        raise Refused("E_ARG", "a deposit is 0 or more")
    with changing() as ledger:
        key = number(ledger, "item", "itm")
        ledger["items"][key] = {"id": key, "label": args.label.strip(), "deposit": args.deposit, "status": "shelf"}
    return {"item": ledger["items"][key]}


def item_list(args, today):
    wanted = [word.strip() for word in args.status.split(",")]
    if not set(wanted) <= set(STATUSES):
        raise Refused("E_ARG", f"a status is one of {', '.join(STATUSES)}")
    items = [item for _, item in sorted(load()["items"].items()) if item["status"] in wanted]
    return {"count": len(items), "items": items}


def item_retire(args, today):
    confirmed(args)
    with changing() as ledger:
        item = find(ledger, "items", args.id)
        if item["status"] == "out":
            raise Refused("E_STATE", f"`{args.id}` is lent", "close its loan first")
        item["status"] = "retired"
    return {"item": item}


def loan_open(args, today):
    with changing() as ledger:
        item = find(ledger, "items", args.id)
        if item["status"] != "shelf":
            raise Refused("E_STATE", f"`{args.id}` is not on the shelf but {item['status']}", "item list --status shelf")
        key = number(ledger, "loan", "ln")
        ledger["loans"][key] = {"id": key, "item": args.id, "to": args.to, "opened": today, "due": args.due, "returnedOn": None}
        item["status"] = "out"
    return {"loan": ledger["loans"][key]}


def loan_close(args, today):
    with changing() as ledger:
        loan = find(ledger, "loans", args.id)
        if loan["returnedOn"]:
            return {"loan": loan, "unchanged": True}
        loan["returnedOn"] = today
        ledger["items"][loan["item"]]["status"] = "shelf"
    return {"loan": loan, "unchanged": False}


def loan_list(args, today):
    loans = [loan for _, loan in sorted(load()["loans"].items()) if not (args.open and loan["returnedOn"])]
    return {"count": len(loans), "loans": loans}


def report_overdue(args, today):
    as_of, ledger = args.as_of or today, load()
    late = [loan for loan in ledger["loans"].values() if not loan["returnedOn"] and loan["due"] < as_of]
    days = datetime.date.fromisoformat(as_of)
    rows = [
        {"loan": loan["id"], "item": loan["item"], "label": ledger["items"][loan["item"]]["label"], "to": loan["to"], "due": loan["due"],
         "daysLate": (days - datetime.date.fromisoformat(loan["due"])).days}
        for loan in sorted(late, key=lambda loan: (loan["due"], loan["id"]))
    ]
    return {"asOf": as_of, "overdue": rows}


def ledger_reset(args, today):
    confirmed(args)
    with changing() as ledger:
        removed = {"items": len(ledger["items"]), "loans": len(ledger["loans"])}
        ledger["items"], ledger["loans"] = {}, {}
    return {"removed": removed}


def confirmed(args):
    if not args.confirm:
        raise Refused("E_CONFIRM", "this cannot be undone", "add --confirm if it is meant")


def table(answer):
    """The same answer for people."""
    rows = next((value for value in answer.values() if isinstance(value, list)), None)
    if rows is None:
        rows = [value for value in answer.values() if isinstance(value, dict)] or [answer]
    lines = ["  ".join(f"{key}: {value}" for key, value in row.items() if value is not None) for row in rows]
    return "\n".join(lines) or "nothing"


def main(argv):
    command = " ".join(argv[:2])
    try:
        args = parser().parse_args(argv)
        command = f"{args.noun} {args.verb}"
        today = args.today or datetime.date.today().isoformat()
        answer = globals()[command.replace(" ", "_")](args, today)
    except Refused as refused:
        error = {"code": refused.code, "message": refused.message, "hint": refused.hint}
        print(json.dumps({"ok": False, "command": command, "error": error}, ensure_ascii=False))
        return EXITS[refused.code]
    document = {"ok": True, "command": command, **answer}
    print(table(answer) if args.human else json.dumps(document, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
