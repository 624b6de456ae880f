"""The official `openai` client, unmodified, against a running server.

    python openai_suite.py PATH-OF-THE-MILLRACE-BINARY

Makes a small synthetic model, serves it on a free port of 127.0.0.1, and runs every check below.
Random weights give random text: what is checked is form, equality and endings, never wit.
"""

import base64
import json
import pathlib
import sys
import threading
import time
import urllib.request
from typing import Literal

import openai
from pydantic import BaseModel

TRAIN = pathlib.Path(__file__).resolve().parents[1] / "train"
sys.path.append(str(TRAIN))
import evaluate
from suite import COLORS, KEEP_ALIVE_MS, MODEL, QUESTION, check, run, square

ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say anything — é, 漢, 🙂."}]


def stream(client, **options):
    options = {"model": MODEL, "messages": ASK, "max_tokens": 24, "seed": 7, "stream": True} | options
    return list(client.chat.completions.create(**options))


def whole(client, **options):
    options = {"model": MODEL, "messages": ASK, "max_tokens": 24, "seed": 7} | options
    return client.chat.completions.create(**options)


def text_of(chunks, index=0):
    pieces = [c.delta.content or "" for chunk in chunks for c in chunk.choices if c.index == index]
    return "".join(pieces)


@check
def models(client, _):
    """the model is listed and can be fetched by name"""
    assert [m.id for m in client.models.list()] == [MODEL, "millrace-mini"]
    assert client.models.retrieve(MODEL).object == "model"


@check
def streamed_equals_whole(client, _):
    """a streamed answer concatenates to the whole one, for several seeds"""
    for seed in range(5):
        chunks = stream(client, seed=seed)
        answer = whole(client, seed=seed)
        assert text_of(chunks) == answer.choices[0].message.content, seed
        assert chunks[0].choices[0].delta.role == "assistant"
        finishes = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
        assert finishes == [answer.choices[0].finish_reason], finishes
        assert len({chunk.id for chunk in chunks}) == 1 and len({chunk.created for chunk in chunks}) == 1


@check
def resumable_stream(client, _):
    """a resumable stream, whose first event sets the reconnection time, concatenates to the whole answer"""
    chunks = stream(client, extra_headers={"X-Stream-Resumable": "1"})
    assert text_of(chunks) == whole(client).choices[0].message.content


@check
def keep_alives_of_resumable_stream(client, server):
    """keep-alives of a resumable stream that is paused are no events"""
    body = {"model": MODEL, "messages": ASK, "max_tokens": 1000, "seed": 7, "stream": True}
    headers = {"X-Stream-Resumable": "1"}
    with client.chat.completions.create(**body, extra_body={"ignore_eos": True}, extra_headers=headers) as chunks:
        seen = [next(chunks)]
        control = f"{server.url}/v1/streams/{chunks.response.headers['x-stream-id']}"
        urllib.request.urlopen(urllib.request.Request(f"{control}/pause", method="POST"))
        # Some intervals of `streams.keep_alive_ms`, as the suite sets it.
        time.sleep(5 * KEEP_ALIVE_MS / 1e3)
        urllib.request.urlopen(urllib.request.Request(f"{control}/resume", method="POST"))
        seen += chunks
    assert seen[-1].choices[0].finish_reason == "length"


@check
def same_seed_same_text(client, _):
    """a seed repeats its answer; no seed gives a fresh one"""
    assert whole(client).choices[0].message.content == whole(client).choices[0].message.content
    fresh = {whole(client, seed=None).choices[0].message.content for _ in range(4)}
    assert len(fresh) > 1, fresh


@check
def usage(client, _):
    """usage comes once, at the end, and only when asked for; whole answers have it"""
    assert all(chunk.usage is None for chunk in stream(client))
    chunks = stream(client, stream_options={"include_usage": True})
    assert [chunk for chunk in chunks if chunk.usage] == chunks[-1:] and chunks[-1].choices == []
    counted = chunks[-1].usage
    assert counted.total_tokens == counted.prompt_tokens + counted.completion_tokens
    again = whole(client)
    assert again.usage.completion_tokens == counted.completion_tokens
    assert again.usage.prompt_tokens_details.cached_tokens <= again.usage.prompt_tokens


@check
def images(client, server):
    """an image is seen, counted, and found in the cache the second time"""
    with server.seeing() as model:
        for color in COLORS:
            url = f"data:image/png;base64,{base64.b64encode(square(color)).decode()}"
            parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": QUESTION}]
            talk = [{"role": "user", "content": parts}]
            asked = {"model": model, "messages": talk, "temperature": 0}
            answer = whole(client, **asked)
            assert color in answer.choices[0].message.content, (color, answer)
            assert text_of(stream(client, **asked)) == answer.choices[0].message.content
            assert whole(client, **asked).usage.prompt_tokens_details.cached_tokens > 0
            item = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": QUESTION}]
            response = client.responses.create(model=model, input=[{"role": "user", "content": item}], temperature=0)
            assert color in response.output_text, (color, response)


@check
def two_choices(client, _):
    """n=2 interleaves two different answers with one finish each, equal to the whole ones"""
    chunks = stream(client, n=2)
    answer = whole(client, n=2)
    for index in (0, 1):
        assert text_of(chunks, index) == answer.choices[index].message.content
        finishes = [c.finish_reason for k in chunks for c in k.choices if c.index == index and c.finish_reason]
        assert len(finishes) == 1
    assert text_of(chunks, 0) != text_of(chunks, 1)


@check
def stop_strings(client, _):
    """a stop string ends the answer before it and never leaks"""
    full = whole(client, max_tokens=48).choices[0].message.content
    stop = full[len(full) // 2 : len(full) // 2 + 3]
    answer = whole(client, max_tokens=48, stop=[stop, "never to be seen"])
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == full[: full.index(stop)]
    assert text_of(stream(client, max_tokens=48, stop=stop)) == answer.choices[0].message.content


@check
def logprobs(client, _):
    """each token has its log-probability and the alternatives asked for, streamed and whole"""
    answer = whole(client, logprobs=True, top_logprobs=3, temperature=0)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob
        assert abs(token.logprob - token.top_logprobs[0].logprob) < 1e-5, "greedy takes the likeliest"
    chunks = stream(client, logprobs=True, top_logprobs=3, temperature=0)
    parts = [c.logprobs.content for k in chunks for c in k.choices if c.logprobs and c.logprobs.content]
    assert [t.token for part in parts for t in part] == [t.token for t in content]


@check
def length(client, _):
    """max_tokens ends with `length`, by either of its names"""
    bias = {"logit_bias": {}, "extra_body": {"ignore_eos": True}}
    for name in ("max_tokens", "max_completion_tokens"):
        answer = whole(client, **({"max_tokens": None} | {name: 5} | bias))
        assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 5


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"unit": {"type": "string", "enum": ["c", "f"]}, "days": {"type": "integer", "enum": [1, 2, 3]}},
            "required": ["unit", "days"],
            "additionalProperties": False,
        },
    },
}


@check
def tools(client, _):
    """a call that must be made is accumulated by the streaming helper to what comes when it is not streamed"""
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        options = {"model": MODEL, "messages": ASK, "max_tokens": 400, "seed": 7, "tools": [WEATHER]}
        options |= {"tool_choice": choice, "parallel_tool_calls": False}
        with client.chat.completions.stream(**options) as events:
            kinds = [event.type for event in events]
            streamed = events.get_final_completion().choices[0]
        assert "tool_calls.function.arguments.delta" in kinds and "tool_calls.function.arguments.done" in kinds, kinds
        answer = client.chat.completions.create(**options).choices[0]
        for choice in (streamed, answer):
            assert choice.finish_reason == "tool_calls", choice
            (call,) = choice.message.tool_calls
            assert call.id.startswith("call_") and call.type == "function" and call.function.name == "weather"
            arguments = json.loads(call.function.arguments)
            assert arguments["unit"] in ("c", "f") and arguments["days"] in (1, 2, 3) and len(arguments) == 2
            assert not choice.message.content, choice
        assert streamed.message.tool_calls[0].function.parsed_arguments == json.loads(
            answer.message.tool_calls[0].function.arguments
        )
        call = answer.message.tool_calls[0]
        told = ASK + [answer.message, {"role": "tool", "tool_call_id": call.id, "content": "warm"}]
        assert whole(client, messages=told, tools=[WEATHER]).choices[0].finish_reason


@check
def structured(client, _):
    """an answer of a schema is parsed by the helpers, streamed and whole, to the same object"""

    class Day(BaseModel):
        unit: Literal["c", "f"]
        warm: bool

    options = {"model": MODEL, "messages": ASK, "max_tokens": 200, "seed": 7, "response_format": Day}
    with client.chat.completions.stream(**options) as events:
        kinds = [event.type for event in events]
        streamed = events.get_final_completion().choices[0].message
    assert "content.delta" in kinds and "content.done" in kinds, kinds
    parsed = client.chat.completions.parse(**options).choices[0].message
    assert isinstance(streamed.parsed, Day) and streamed.parsed == parsed.parsed, (streamed, parsed)


@check
def thinking(client, _):
    """the built-in model thinks when it is asked to; the helper accumulates its reasoning apart from its answer"""
    asked = [{"role": "user", "content": "What is 12 + 7?"}]
    options = {"model": "millrace-mini", "messages": asked, "max_tokens": 400, "seed": 7}
    for effort in ("high", "none"):
        with client.chat.completions.stream(**options, reasoning_effort=effort) as events:
            for _ in events:
                pass
            streamed = events.get_final_completion().choices[0].message
        answer = client.chat.completions.create(**options, reasoning_effort=effort).choices[0].message
        for message in (streamed, answer):
            thought = (message.model_extra or {}).get("reasoning_content") or ""
            assert bool(thought.strip()) == (effort == "high"), (effort, message)
            assert message.content.strip() and "think>" not in message.content, message
        assert streamed.content == answer.content
        assert streamed.model_extra.get("reasoning_content") == answer.model_extra.get("reasoning_content")


@check
def best_of(client, _):
    """of several completions the likeliest are told, and all are counted"""
    options = {"model": MODEL, "prompt": "Once", "max_tokens": 8, "seed": 7, "extra_body": {"ignore_eos": True}}
    all_of_them = client.completions.create(n=4, **options)
    best = client.completions.create(n=1, best_of=4, **options)
    (choice,) = best.choices
    assert choice.text in [other.text for other in all_of_them.choices]
    assert best.usage.completion_tokens == all_of_them.usage.completion_tokens == 32


@check
def legacy_completions(client, _):
    """text completions, streamed and whole, with echo"""
    options = {"model": MODEL, "prompt": "Once upon", "max_tokens": 12, "seed": 3}
    answer = client.completions.create(**options)
    chunks = list(client.completions.create(**options, stream=True))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == answer.choices[0].text
    echoed = client.completions.create(**options, echo=True)
    assert echoed.choices[0].text == "Once upon" + answer.choices[0].text


@check
def errors(client, _):
    """wrong requests raise the client's own exceptions, naming the field"""
    cases = [
        (openai.BadRequestError, {"temperature": -1}, "temperature"),
        (openai.BadRequestError, {"max_tokens": 0}, "max_tokens"),
        (openai.BadRequestError, {"top_p": 7}, "top_p"),
        (openai.BadRequestError, {"messages": []}, "messages"),
        (openai.BadRequestError, {"n": 100000}, "n"),
        (openai.BadRequestError, {"messages": [{"role": "user", "content": "word " * 9000}]}, None),
        (openai.BadRequestError, {"tools": [{"type": "function", "function": {"name": "f g"}}]}, "tools[0].function.name"),
        (openai.BadRequestError, {"tool_choice": "required"}, "tool_choice"),
        (openai.NotFoundError, {"model": "no-such-model"}, None),
    ]
    for kind, options, param in cases:
        for ask in (stream, whole):
            try:
                ask(client, **options)
            except kind as error:
                assert param is None or error.param == param, (options.keys(), error)
                assert error.request_id, "the server names each request"
            else:
                raise AssertionError(f"{list(options)} was accepted")


@check
def deadline(client, _):
    """a deadline that passes is a 504 before bytes and a `timeout` error after them; one that cannot be met a 503"""
    unattainable = lambda error: error.code == "deadline_unattainable" and error.status_code == 503
    options = {"max_tokens": 1500, "extra_body": {"ignore_eos": True}, "extra_headers": {"Request-Timeout-Ms": "5"}}
    try:
        whole(client, **options)
    except openai.InternalServerError as error:
        assert error.status_code == 504 or unattainable(error), error
    else:
        raise AssertionError("the deadline did not fire")
    try:
        stream(client, **options)
    except openai.APIError as error:
        assert error.code in ("timeout", "deadline") or error.status_code == 504 or unattainable(error), error
    else:
        raise AssertionError("the deadline did not fire")


@check
def disconnect(client, server):
    """a client that leaves mid-stream leaves nothing running"""
    options = {"max_tokens": 1500, "extra_body": {"ignore_eos": True}}
    for _ in range(5):
        chunks = client.chat.completions.create(model=MODEL, messages=ASK, stream=True, **options)
        next(iter(chunks))
        chunks.close()
    deadline = time.monotonic() + 30
    while server.metric("running") + server.metric("queued"):
        assert time.monotonic() < deadline, "work goes on after the client left"
        time.sleep(0.02)


@check
def many_at_once(client, _):
    """32 streams at once each give the text they give alone"""
    alone = [text_of(stream(client, seed=seed)) for seed in range(32)]
    together = [None] * 32

    def one(seed):
        together[seed] = text_of(stream(client, seed=seed))

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(32)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert together == alone


@check
def evaluation(client, _):
    """tools/train/evaluate.py finds most answers of the built-in model right, and says why one is wrong"""
    cases = evaluate.read_cases(TRAIN / "short-cases.jsonl")
    outcomes = evaluate.evaluate(client, "millrace-mini", cases)
    assert len(outcomes) == len(cases) >= 20 and outcomes.count(None) >= len(cases) / 2, outcomes
    impossible = cases[0] | {"check": {"equals": "never"}}
    assert evaluate.ask(client, "millrace-mini", impossible).endswith("wanted ['never']")
    call = {"tool_call": {"name": "f", "arguments": {"a": 1}}}
    assert evaluate.why_wrong(call, "", "", [("f", {"a": 1})]) is None
    for check_, text, calls in [(call, "", [("f", {"a": 2})]), ({"calls": False}, "<tool_call>", []), ({"at_least": 3}, "ab", [])]:
        assert evaluate.why_wrong(check_, text, "", calls), check_


def transcript(client):
    """Prints when each piece arrived: one by one, not in a burst at the end."""
    start = time.monotonic()
    chunks = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=40, seed=1, stream=True, extra_body={"ignore_eos": True}
    )
    arrivals = [(time.monotonic() - start) * 1e3 for _ in chunks]
    print("arrivals in ms:", " ".join(f"{at:.1f}" for at in arrivals))


if __name__ == "__main__":
    run(lambda url: openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120), transcript)
