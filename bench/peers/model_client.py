"""A chat call as cheap as Python has it: the standard library's client on one connection that is kept. A model's SDK takes longer."""

import http.client
import json
import os

connection = http.client.HTTPConnection(os.environ.get("MODEL_ADDRESS", ""))


def ask(prompt):
    asked = json.dumps({"model": "m", "messages": [{"role": "user", "content": prompt}]})
    connection.request("POST", "/v1/chat/completions", asked, {"content-type": "application/json"})
    answer = connection.getresponse()
    reported = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"the model answered {answer.status}")
    return json.loads(reported)["choices"][0]["message"]["content"]
