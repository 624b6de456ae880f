"""The official `ollama` client, unmodified, against a running server.

    python ollama_suite.py PATH-OF-THE-MILLRACE-BINARY

Makes a small synthetic model, serves it on a free port of 127.0.0.1, and runs every check below.
Random weights give random text: what is checked is form, equality and endings, never wit.
"""

import asyncio
import json
import time

import httpx
import ollama

from suite import COLORS, MODEL, QUESTION, check, run, square

ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say anything — é, 漢, 🙂."}]
LONG = {"num_predict": 1500, "ignore_eos": True}


def options(**over):
    return {"num_predict": 24, "seed": 7} | over


def counts(part):
    assert part.done and part.prompt_eval_count > 0 and part.eval_count > 0
    spent = part.load_duration + part.prompt_eval_duration + part.eval_duration
    assert 0 < spent <= part.total_duration, (spent, part.total_duration)
    return part.prompt_eval_count, part.eval_count, part.done_reason


@check
def chat(client, _):
    """a streamed chat concatenates to the whole one, with the same counts, for several seeds"""
    for seed in range(5):
        parts = list(client.chat(MODEL, ASK, stream=True, options=options(seed=seed)))
        whole = client.chat(MODEL, ASK, options=options(seed=seed))
        assert "".join(part.message.content for part in parts) == whole.message.content, seed
        assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
        assert all(part.message.role == "assistant" for part in parts)
        assert counts(parts[-1]) == counts(whole)


@check
def generate(client, _):
    """the same for generate, whose context can be sent again"""
    parts = list(client.generate(MODEL, "Once upon", stream=True, options=options()))
    whole = client.generate(MODEL, "Once upon", options=options())
    assert "".join(part.response for part in parts) == whole.response
    assert counts(parts[-1]) == counts(whole)
    assert list(whole.context) == list(parts[-1].context)
    assert len(whole.context) >= whole.prompt_eval_count + whole.eval_count
    again = client.generate(MODEL, "and then", context=whole.context, options=options())
    assert again.prompt_eval_count > len(whole.context)
    assert list(again.context)[: len(whole.context)] == list(whole.context)


@check
def images(client, server):
    """an image is seen in a chat and by generate, and the model says that it sees"""
    with server.seeing() as model:
        assert "vision" in client.show(model).capabilities
        for color in COLORS:
            certain = {"num_predict": 24, "temperature": 0}
            talk = [{"role": "user", "content": QUESTION, "images": [square(color)]}]
            answer = client.chat(model, talk, options=certain)
            assert color in answer.message.content, (color, answer)
            answer = client.generate(model, QUESTION, images=[square(color)], options=certain)
            assert color in answer.response, (color, answer)


@check
def raw_and_templates(client, _):
    """raw takes the prompt as it is; system and template change it"""
    asked = {"options": options(num_predict=4)}
    plain = client.generate(MODEL, "Hello", raw=True, **asked)
    assert plain.context is None
    templated = client.generate(MODEL, "Hello", template="{{ .Prompt }}", **asked)
    assert templated.response == plain.response, "the same prompt"
    with_system = client.generate(MODEL, "Hello", system="Be brief.", **asked)
    without = client.generate(MODEL, "Hello", **asked)
    assert with_system.prompt_eval_count > without.prompt_eval_count


@check
def stops_and_lengths(client, _):
    """num_predict ends with `length`, a stop string with `stop` and without a leak"""
    full = client.chat(MODEL, ASK, options=options(num_predict=48, ignore_eos=True))
    assert (full.done_reason, full.eval_count) == ("length", 48)
    text = full.message.content
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    answer = client.chat(MODEL, ASK, options=options(num_predict=48, ignore_eos=True, stop=[stop]))
    assert answer.done_reason == "stop"
    assert answer.message.content == text[: text.index(stop)]


@check
def logprobs(client, _):
    """log-probabilities, streamed and whole"""
    asked = {"logprobs": True, "top_logprobs": 3, "options": options(temperature=0)}
    whole = client.chat(MODEL, ASK, **asked)
    assert len(whole.logprobs) > 0 and all(len(token.top_logprobs) == 3 for token in whole.logprobs)
    parts = client.chat(MODEL, ASK, stream=True, **asked)
    streamed = [token.token for part in parts for token in part.logprobs or []]
    assert streamed == [token.token for token in whole.logprobs]


@check
def formats(client, _):
    """an answer keeps the schema it is asked for in, streamed and whole"""
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "warm": {"type": "boolean"}},
        "required": ["colour", "warm"],
        "additionalProperties": False,
    }
    asked = {"format": schema, "options": options(num_predict=400, temperature=0)}
    whole = client.chat(MODEL, ASK, **asked)
    assert whole.done_reason == "stop" and json.loads(whole.message.content)["colour"] in ("red", "blue")
    streamed = "".join(part.message.content for part in client.chat(MODEL, ASK, stream=True, **asked))
    assert streamed == whole.message.content


@check
def models(client, _):
    """list, show, ps name the same model"""
    listed = client.list().models
    assert [model.model for model in listed] == [f"{MODEL}:latest", "millrace-mini:latest"]
    assert listed[0].size > 0 and len(listed[0].digest) == 64 and listed[0].modified_at.year > 2000
    assert listed[0].details.family == "llama" and listed[0].details.quantization_level == "Q8_0"
    for name in (MODEL, f"{MODEL}:latest"):
        shown = client.show(name)
        assert shown.details.parameter_size and shown.modelinfo["general.architecture"] == "llama"
        # Tools are told in the conversation where the template has no place for them.
        assert shown.capabilities == ["completion", "tools"]
    running = client.ps().models
    assert [model.name for model in running] == [f"{MODEL}:latest"]
    assert running[0].context_length > 0 and running[0].expires_at.year > 2100


@check
def load(client, _):
    """a request without a question loads the model"""
    assert client.generate(MODEL).done_reason == "load"
    assert client.chat(MODEL, [], keep_alive="5m").done_reason == "load"


@check
def residence(client, _):
    """another model is loaded when it is asked for, and let go of when it is told to"""
    mini = "millrace-mini"
    assert client.chat(mini, ASK, options=options(), keep_alive="1h").model == mini
    assert [model.name for model in client.ps().models] == [f"{MODEL}:latest", f"{mini}:latest"]
    assert client.generate(mini, keep_alive=0).done_reason == "unload"
    deadline = time.monotonic() + 30
    while len(client.ps().models) > 1:
        assert time.monotonic() < deadline, "it was told to go"
        time.sleep(0.02)


@check
def management(client, server):
    """models are pulled, made, copied and deleted"""
    name = "hf.co/org/repo"
    steps = list(client.pull(name, stream=True))
    assert steps[-1].status == "success" and f"sha256:{server.hub.digest}" in {step.digest for step in steps}
    assert client.pull(name).status == "success"
    assert client.create("brief", from_=name, system="Be brief.", parameters={"num_predict": 3}).status == "success"
    assert client.show("brief").modelinfo["general.architecture"] == "llama"
    assert client.chat("brief", ASK).eval_count <= 3
    assert client.copy("brief", "team/short").status == "success"
    names = {model.model for model in client.list().models}
    assert {f"{name}:latest", "brief:latest", "team/short:latest"} <= names
    for each in (name, "brief", "team/short"):
        assert client.delete(each).status == "success"
    assert len(client.list().models) == 2


@check
def errors(client, _):
    """wrong requests raise the client's own exception, in words"""
    cases = [
        (404, "not found", lambda: client.chat("no-such-model", ASK)),
        (404, "not found", lambda: list(client.chat("no-such-model", ASK, stream=True))),
        (404, "not found", lambda: client.show("no-such-model")),
        (400, "temperature", lambda: client.chat(MODEL, ASK, options={"temperature": -1})),
        (400, "tokens", lambda: client.chat(MODEL, [{"role": "user", "content": "word " * 9000}])),
        (400, "short name", lambda: client.pull("anything")),
        (404, "not found", lambda: client.pull("org/nobody")),
        (400, "started with", lambda: client.delete(MODEL)),
        (404, "not found", lambda: client.delete("nobody")),
        (404, "not found", lambda: client.copy("nobody", "other")),
        (400, "name", lambda: client.copy(MODEL, "../other")),
        (404, "not found", lambda: client.create("other", from_="nobody")),
    ]
    for status, words, ask in cases:
        try:
            ask()
        except ollama.ResponseError as error:
            assert error.status_code == status and words in error.error, (status, words, error)
        else:
            raise AssertionError(f"{words}: accepted")


@check
def embeddings(client, _):
    """texts become vectors of length 1, the same alone and beside others"""
    both = client.embed(MODEL, ["rivers", "mills"])
    alone = client.embed(MODEL, "rivers")
    assert both.embeddings[0] == alone.embeddings[0] != both.embeddings[1]
    for vector in both.embeddings:
        assert abs(sum(x * x for x in vector) - 1) < 1e-4
    raw = client.embeddings(MODEL, "rivers").embedding
    ratio = raw[0] / alone.embeddings[0][0]
    assert all(abs(a - ratio * b) < 1e-3 for a, b in zip(raw, alone.embeddings[0]))


@check
def deadline(client, server):
    """a deadline that passes mid-stream raises the client's own exception"""
    hasty = ollama.Client(host=server.url, headers={"Request-Timeout-Ms": "20"})
    try:
        list(hasty.chat(MODEL, ASK, stream=True, options=LONG))
    except ollama.ResponseError as error:
        assert "deadline" in error.error, error
    else:
        raise AssertionError("the deadline did not fire")


@check
def leaving(client, server):
    """a client that leaves mid-stream leaves nothing running"""
    for _ in range(5):
        parts = client.chat(MODEL, ASK, stream=True, options=LONG)
        next(parts)
        parts.close()
    server.wait_until_idle()


@check
def asynchronous(_, server):
    """16 asynchronous streams at once each give the text they give alone"""

    async def one(client, seed):
        parts = await client.chat(MODEL, ASK, stream=True, options=options(seed=seed))
        return "".join([part.message.content async for part in parts])

    async def all_of_them():
        client = ollama.AsyncClient(host=server.url)
        alone = [await one(client, seed) for seed in range(16)]
        together = await asyncio.gather(*(one(client, seed) for seed in range(16)))
        assert together == alone

    asyncio.run(all_of_them())


@check
def events(_, server):
    """the same lines come as events where those are asked for"""
    body = {"model": MODEL, "messages": ASK, "options": options()}

    def said(lines):
        objects = [json.loads(line) for line in lines]
        assert [part["done"] for part in objects] == [False] * (len(objects) - 1) + [True]
        return "".join(part["message"]["content"] for part in objects), objects[-1]["eval_count"]

    reply = httpx.post(f"{server.url}/api/chat", json=body)
    assert reply.headers["content-type"] == "application/x-ndjson"
    lines = reply.text.splitlines()
    reply = httpx.post(f"{server.url}/api/chat", json=body, headers={"Accept": "text/event-stream"})
    assert reply.headers["content-type"] == "text/event-stream"
    # A stream that waits for its model has comments, which begin with a colon.
    frames = [frame.removeprefix("data: ") for frame in reply.text.split("\n\n") if frame and not frame.startswith(":")]
    assert frames.pop() == "[DONE]" and said(frames) == said(lines)


if __name__ == "__main__":
    run(lambda url: ollama.Client(host=url, timeout=120))
