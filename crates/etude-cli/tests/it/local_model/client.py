"""Uses `etude model serve` through OpenAI's own client. Arguments: the base URL and the token."""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
chat = client.chat.completions
model = client.models.list().data[0].id
question = [{"role": "user", "content": "Which city is in France, Oslo or Paris? Answer with one word."}]

whole = chat.create(model=model, messages=question, max_tokens=8, seed=1, temperature=0)
assert whole.choices[0].finish_reason in ("stop", "length"), whole
assert whole.usage.prompt_tokens > 10 and 0 < whole.usage.completion_tokens <= 8, whole.usage

chunks = list(chat.create(model=model, messages=question, max_tokens=8, temperature=0, stream=True))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content, chunks
options = {"include_usage": True}
*_, last = chat.create(model=model, messages=question, max_tokens=8, stream=True, stream_options=options)
assert last.choices == [] and last.usage.total_tokens > 10, last

schema = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Paris"]}}, "required": ["city"]}
form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
bound = chat.create(model=model, messages=question, response_format=form)
assert json.loads(bound.choices[0].message.content)["city"] in ("Oslo", "Paris"), bound

tool = {"type": "function", "function": {"name": "pick", "description": "Picks a city.", "parameters": schema}}
choice = {"type": "function", "function": {"name": "pick"}}
called = chat.create(model=model, messages=question, tools=[tool], tool_choice=choice)
call = called.choices[0].message.tool_calls[0]
assert called.choices[0].finish_reason == "tool_calls" and call.function.name == "pick", called
assert json.loads(call.function.arguments)["city"] in ("Oslo", "Paris"), call

stopped = chat.create(model=model, messages=[{"role": "user", "content": "Count from 1 to 9, with commas."}], stop="3")
assert "3" not in stopped.choices[0].message.content and stopped.choices[0].finish_reason == "stop", stopped

try:
    chat.create(model=model, messages=question, n=2)
    raise AssertionError("n = 2 was served")
except openai.BadRequestError as error:
    assert error.code == "invalid_request", error
try:
    openai.OpenAI(base_url=sys.argv[1], api_key="guess", max_retries=0).models.list()
    raise AssertionError("a wrong token was accepted")
except openai.AuthenticationError as error:
    assert error.code == "invalid_api_key", error

models = [model.id for model in client.models.list()]
if "all-minilm-l6-v2" in models:
    rows = client.embeddings.create(model="all-minilm-l6-v2", input=["one", "two words"])
    assert [len(row.embedding) for row in rows.data] == [384, 384] and rows.usage.total_tokens == 7, rows.usage
print("ok")
