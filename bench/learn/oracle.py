"""A model that answers the questions of learned pipelines from a known solution, and from nothing else.

A parameter is given only if its value occurs in the user's words. An answer is given only if it is in the closed set of the question.
Whether a call is confirmed is answered by what is shown: yes exactly if the solution makes this call. The question before the write, whether
the call is asked for and allowed, is answered in the same way with `is_judge`; without it, it is answered by the policy alone, so that
nothing but the pipeline stands between a wrong choice and the database.

With `error_rate`, that share of the questions gets another answer of the set. Which ones is decided by a hash, so that every measurement
of the same questions is the same; each `draw` is another selection."""

import hashlib
import http.server
import json
import re
import threading

HANDED_OVER = "The agent would go on from here."
# How the call is shown in the question before a write, and in a confirmation.
PREPARED = re.compile(r"This call of `([^`]+)` is prepared:\n(.*?)\n\s*What was read; it is data", re.S)
# What one of several questions with the same words is about.
ABOUT = re.compile(r"It is asked for this:\n(.*?)\n\nWhich of these", re.S)
TO_CONFIRM = re.compile(r"Call:\n<data>(.*)</data>\s*\Z", re.S)


def folded(text):
    """Text as learning compares it: without case; `_`, `#` and blanks are one blank."""
    return re.sub(r"[\s_#]+", " ", str(text).casefold()).strip()


def occurs(value, text):
    """True if the value stands in the text at the bounds of words, and not only inside an address of mail: who gives one has not said
    their name."""
    wanted = folded(value)
    if "@" not in wanted:
        text = re.sub(r"\S+@\S+", " ", text)
    return bool(wanted) and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", folded(text)) is not None


def scalars(value):
    """Every string and number of a JSON value, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [leaf for element in value for leaf in scalars(element)]
    return [] if value is None or isinstance(value, bool) else [value]


def as_json(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


class Oracle:
    """What one run is to be answered: the arguments of the write that it should make."""

    def __init__(self, name, arguments, related=(), allowed="yes", judge=None, error_rate=0.0, is_silent=False, is_judge=False, draw=0, targets=None, direct=()):
        self.name, self.arguments, self.allowed = name, arguments, allowed
        self.error_rate, self.is_silent, self.is_judge, self.draw = error_rate, is_silent, is_judge, draw
        # Says whether the solution makes a call.
        self.judge = judge
        # Which argument a question is for, where the definition of the pipeline says so.
        self.targets = targets or {}
        # The questions whose answer is an argument of the write as it is.
        self.direct = direct
        self.known = scalars(arguments)
        self.related = list(related)
        self.asked = self.mistaken = 0

    def respond(self, body):
        """The assistant's message for a body of `/v1/chat/completions`."""
        schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema")
        if schema is None or body.get("tools"):
            return {"content": HANDED_OVER}
        prompt = "\n".join(message["content"] for message in body["messages"] if isinstance(message.get("content"), str))
        return {"content": json.dumps({name: self.answer(name, question, prompt) for name, question in schema.get("properties", {}).items()})}

    def answer(self, name, question, prompt):
        if name in ("rule", "reason") and "enum" not in question:
            return "the policy"
        offered = question.get("enum") or question.get("items", {}).get("enum")
        is_many = "items" in question
        self.asked += 1
        if name == "confirm":
            shown = json.loads(TO_CONFIRM.search(prompt)[1])
            right = "yes" if self.judge.is_meant(shown["tool"], shown["arguments"]) else "no"
        elif name == "allowed":
            right = self.allowed if not self.is_judge or self.is_asked_for(*PREPARED.search(prompt).groups()) else "no"
        elif "null" in question.get("type", ()):
            # A parameter that is not given has not been said.
            return None
        elif offered is None:
            return self.words(name)
        elif self.is_silent:
            right = [] if is_many else "none"
        else:
            right = self.choose(name, offered, is_many, prompt)
        if self.errs(name):
            self.mistaken += 1
            if name in ("allowed", "confirm"):
                return "no" if right == "yes" else "yes"
            return self.another(name, right, [value for value in offered if value != "none"], is_many)
        return right

    def is_asked_for(self, tool, lines):
        calls = self.judge.read(tool, lines)
        return bool(calls) and all(self.judge.is_meant(tool, given) for given in calls)

    def choose(self, name, offered, is_many, prompt):
        """The offered values that the solution has. An answer that the write takes as it is must be that of its argument. Else: first those of
        the argument that is asked for, then of all, then of its records."""
        argument = self.arguments.get(self.targets.get(name) or self.argument(name))
        own = self.element(argument, prompt)
        wanted = scalars(argument if own is None else own)
        for values in (wanted,) if name in self.direct or own is not None else (wanted, self.known, self.related):
            found = [option for value in values for option in offered if option != "none" and str(option) == str(value)]
            if found:
                return list(dict.fromkeys(found)) if is_many else found[0]
        return [] if is_many else "none"

    def element(self, value, prompt):
        """Of a list the element that belongs to what a question is about: lists of the same length go together."""
        about = ABOUT.search(prompt)
        if about and isinstance(value, list):
            shown = scalars(as_json(about[1]))
            for other in self.arguments.values():
                if isinstance(other, list) and other != value and len(other) == len(value):
                    places = [at for at, element in enumerate(other) if element in shown]
                    if len(places) == 1:
                        return value[places[0]]
        return None

    def argument(self, name):
        """The argument that a question is named after."""
        plain = re.sub(r"(_\d+|_ids?|s)$", "", name)
        exact = [argument for argument in self.arguments if argument == name]
        return next(iter(exact + [a for a in self.arguments if re.sub(r"(_ids?|s)$", "", a) == plain]), None)

    def words(self, name):
        """For a question that takes words of the request."""
        values = scalars(self.arguments.get(self.targets.get(name) or self.argument(name)))
        return str(values[0]) if values and not self.is_silent else "none"

    def errs(self, name):
        drawn = hashlib.sha256(f"{self.name}/{name}/{self.asked}{self.drawn()}".encode()).digest()
        return int.from_bytes(drawn[:8], "big") / 2**64 < self.error_rate

    def drawn(self):
        return f"/{self.draw}" if self.draw else ""

    def another(self, name, right, offered, is_many):
        """A wrong answer, of those that can do harm where there are such."""
        others = [value for value in offered if value != right and value not in (right if is_many else ())]
        if not others:
            return [] if is_many else "none"
        drawn = hashlib.sha256(f"{self.name}/{name}/wrong{self.drawn()}".encode()).digest()
        other = others[drawn[0] % len(others)]
        return [other, *right[1:]] if is_many else other


class Agent:
    """Plays the agent of a recorded run: its calls in order, then its last words."""

    def __init__(self, calls, answer):
        self.calls, self.said = calls, answer
        self.asked = self.mistaken = 0

    def respond(self, body):
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn >= len(self.calls):
            return {"content": self.said or HANDED_OVER}
        tool, given = self.calls[turn]
        call = {"id": f"call_{turn}", "type": "function", "function": {"name": tool, "arguments": json.dumps(given)}}
        return {"content": None, "tool_calls": [call]}


class Server:
    """An OpenAI-compatible server on loopback, whose oracle is changed from run to run."""

    def __init__(self):
        self.oracle = None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                message = {"role": "assistant", **outer.oracle.respond(body)}
                sent = {part: body[part] for part in ("messages", "tools", "response_format") if part in body}
                # Four characters a token: what a tokenizer would count differs, but for both sides alike.
                usage = {"prompt_tokens": len(json.dumps(sent)) // 4, "completion_tokens": len(json.dumps(message)) // 4}
                choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if message.get("tool_calls") else "stop"}
                document = json.dumps({"id": "oracle", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(document)))
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def configuration(self):
        """A configuration of etude in which this server is every model."""
        port = self.server.server_address[1]
        tiers = {tier: "oracle/oracle" for tier in ("lite", "standard", "reasoning")}
        return {"model_mapping": tiers, "providers": {"oracle": {"kind": "openai-compatible", "base_url": f"http://127.0.0.1:{port}/v1", "structured_output": "native"}}}
