"""The official OpenAI client against `cargo run -p server --example fake`.

    pip install openai && python openai_client.py http://127.0.0.1:8080/v1
"""

import sys

import openai

HELLO = {"258": 100}
client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
chat = client.chat.completions.create
base = dict(model="fake", messages=[{"role": "user", "content": "hi"}], temperature=0, logit_bias=HELLO, max_tokens=3)


def check(name, so):
    print(("ok    " if so else "FAILED"), name)
    check.failed |= not so


check.failed = False

whole = chat(**base)
check("whole", whole.choices[0].message.content == "hellohellohello" and whole.choices[0].finish_reason == "length")
check("usage", whole.usage.total_tokens == 5 and whole.usage.prompt_tokens_details.cached_tokens >= 0)

chunks = list(chat(**base, stream=True, stream_options={"include_usage": True}))
text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
check("streamed", text == "hellohellohello" and chunks[-1].usage.completion_tokens == 3)
check("usage only at the end", all(c.usage is None for c in chunks[:-1]))

two = chat(**{**base, "n": 2})
check("n=2", [c.index for c in two.choices] == [0, 1])
two = list(chat(**{**base, "n": 2}, stream=True))
check("n=2 streamed", {c.choices[0].index for c in two} == {0, 1})

logged = chat(**base, logprobs=True, top_logprobs=2).choices[0].logprobs.content
check("logprobs", len(logged) == 3 and bytes(logged[0].bytes) == b"hello" and len(logged[0].top_logprobs) == 2)

stopped = chat(**base, stop=["lohe"]).choices[0]
check("stop", stopped.message.content == "hel" and stopped.finish_reason == "stop")

seeded = [chat(model="fake", messages=base["messages"], seed=7, max_tokens=20).choices[0].message.content for _ in "ab"]
check("seed", seeded[0] == seeded[1])

done = client.completions.create(model="fake", prompt=["a", "b"], echo=True, logit_bias=HELLO, temperature=0, max_tokens=1)
check("completions", [c.text for c in done.choices] == ["ahello", "bhello"])

check("models", client.models.list().data[0].id == "fake" and client.models.retrieve("fake").id == "fake")

for name, error, ask in [
    ("bad request", openai.BadRequestError, dict(base, temperature=9)),
    ("unknown model", openai.NotFoundError, dict(base, model="other")),
    ("tools", openai.BadRequestError, dict(base, tools=[{"type": "function", "function": {"name": "f"}}])),
]:
    try:
        chat(**ask)
        check(name, False)
    except error as e:
        check(name, isinstance(e.body, dict) and bool(e.body["message"]) and e.request_id.startswith("req-"))

try:
    chat(**{**base, "max_tokens": 4000}, extra_headers={"Request-Timeout-Ms": "1"})
    check("deadline", False)
except openai.InternalServerError as e:
    check("deadline", e.status_code == 504)
try:
    list(chat(**{**base, "max_tokens": 4000}, stream=True, extra_headers={"Request-Timeout-Ms": "1"}))
    check("deadline streamed", False)
except openai.APIError as e:
    check("deadline streamed", e.code == "timeout")

with chat(**{**base, "max_tokens": 4000}, stream=True) as stream:
    next(iter(stream))
check("left early", chat(**base).choices[0].message.content == "hellohellohello")

sys.exit(check.failed)
