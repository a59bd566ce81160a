"""A model by rules: it plays the agent at the desk and answers the questions of learned pipelines, so that recordings can be made
without a key. It knows nothing but what it is sent."""

import http.server
import json
import re
import threading

# Characters of a token, as a rule of thumb; the usage in the recordings is estimated with it.
CHARACTERS_PER_TOKEN = 4
METHODS = {"gift card": "gift card", "visa": "visa"}
PARAMETERS = {"email": re.compile(r"[\w.]+@[\w.]+\w"), "order_id": re.compile(r"T-\d+")}
OPENED = re.compile(r"\bopened\b", re.IGNORECASE)


def respond(body):
    """The message of the assistant for a request to `/v1/chat/completions`."""
    schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema")
    if schema:
        return {"content": json.dumps(answers(schema, body))}
    return agent(body)


def agent(body):
    """The next call, or the last text."""
    request = next(text(message) for message in body["messages"] if message["role"] == "user")
    results = [json.loads(text(message)) for message in body["messages"] if message["role"] == "tool"]
    if any("error" in result for result in results if isinstance(result, dict)):
        return {"content": "I am sorry, that is not possible."}
    email, order_id = (PARAMETERS[name].search(request).group() for name in ("email", "order_id"))
    if not results:
        return call("find_customer", email=email)
    customer = results[0]
    if len(results) == 1:
        return call("get_order", order_id=order_id)
    order = results[1]
    if order["customer_id"] != customer["customer_id"]:
        return {"content": f"I do not find an order {order_id} of yours."}
    if "cancel" in request:
        return cancel(order, results)
    return take_back(request, customer, order, results)


def cancel(order, results):
    if len(results) == 2:
        return call("cancel_order", order_id=order["order_id"])
    return {"content": f"Order {order['order_id']} is cancelled."}


def take_back(request, customer, order, results):
    chosen = [item for item in order["items"] if item["name"].casefold() in request.casefold()]
    method = next(method for method in customer["payment_methods"] if method["kind"] in request)
    if OPENED.search(request):
        return {"content": "I am sorry: tea that has been opened is not taken back."}
    if len(results) == 2:
        return call("return_items", order_id=order["order_id"], item_ids=[item["item_id"] for item in chosen], refund_to=method["method_id"])
    names = " and ".join(item["name"] for item in chosen)
    return {"content": f"We take back: {names}. {results[2]['refund']['cents'] / 100:.2f} EUR go to your {method['kind']}."}


def call(name, **arguments):
    return {"content": None, "tool_calls": [{"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]}


def answers(schema, body):
    """An answer for every question of the schema."""
    prompt = "\n".join(text(message) for message in body["messages"])
    found = {}
    for name, question in schema["properties"].items():
        if name == "allowed":
            found[name] = "no" if OPENED.search(request_of(prompt)) else "yes"
        elif name == "rule":
            found[name] = "Tea that has been opened is not taken back." if found.get("allowed") == "no" else "Only items of an order with the status `delivered` are taken back."
        elif name in PARAMETERS:
            found[name] = PARAMETERS[name].search(request_of(prompt)).group()
        else:
            found[name] = choose(question, prompt)
    return found


def request_of(prompt):
    """The request: the first line that has an order and is not data."""
    return next(line for line in prompt.splitlines() if PARAMETERS["order_id"].search(line) and not line.lstrip().startswith(("{", "[", "-")))


def choose(question, prompt):
    """The offered values whose element the prompt shows with a name or kind that its request says."""
    offered = question.get("enum") or question["items"]["enum"]
    chosen = [value for value in offered if value != "none" and is_said(value, prompt)]
    if "items" in question:
        return chosen
    return (chosen or ["none"])[0]


def is_said(value, prompt):
    """True if the request says what the element with this value is called."""
    request = request_of(prompt)
    element = re.search(r"\{[^{}]*" + re.escape(json.dumps(value)) + r"[^{}]*\}", prompt)
    if not element:
        return value in request
    fields = json.loads(element.group())
    words = [fields[key] for key in ("name", "kind") if key in fields]
    return any(word.casefold() in request.casefold() for word in words)


def text(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", **respond(body)}
        sent = sum(len(json.dumps(body[part], ensure_ascii=False)) for part in ("messages", "tools", "response_format") if part in body)
        usage = {"prompt_tokens": sent // CHARACTERS_PER_TOKEN, "completion_tokens": len(json.dumps(message, ensure_ascii=False)) // CHARACTERS_PER_TOKEN}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if message.get("tool_calls") else "stop"}
        document = json.dumps({"id": "desk", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(document)))
        self.end_headers()
        self.wfile.write(document)

    def log_message(self, *_):
        pass


def serve():
    """Starts the model; gives its server, whose port is free for it alone."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
