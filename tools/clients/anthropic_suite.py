"""The official `anthropic` client, unmodified, against a running server.

    python anthropic_suite.py PATH-OF-THE-MILLRACE-BINARY

Makes a small synthetic model, serves it on a free port of 127.0.0.1, and runs every check below.
Random weights give random text: what is checked is form, equality and endings, never wit.
"""

import asyncio
import base64
import urllib.request
from typing import Literal

import anthropic
from pydantic import BaseModel

from suite import COLORS, MODEL, QUESTION, check, run, square

ASK = [{"role": "user", "content": "Say anything — é, 漢, 🙂."}]
LONG = {"max_tokens": 1500, "extra_body": {"ignore_eos": True}}


def options(**over):
    return {"model": MODEL, "messages": ASK, "max_tokens": 24, "extra_body": {"seed": 7}} | over


def whole(client, **over):
    return client.messages.create(**options(**over))


def events(client, **over):
    return list(client.messages.create(**options(stream=True, **over)))


def text_of(message):
    return "".join(block.text for block in message.content)


@check
def models(client, _):
    """the model is listed, page by page, and can be fetched by name"""
    assert [m.id for m in client.models.list(limit=1)] == [MODEL, "millrace-mini"]
    card = client.models.retrieve(MODEL)
    assert (card.type, card.id, card.max_input_tokens) == ("model", MODEL, 2048), card
    assert card.created_at.year >= 1970 and card.lifecycle == "active"


@check
def whole_message(client, _):
    """a whole message has its form, a reason and counts"""
    message = whole(client)
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL)
    assert message.id.startswith("msg_") and message._request_id.startswith("req-")
    assert message.stop_reason in ("end_turn", "max_tokens") and message.stop_sequence is None
    assert all(block.type == "text" for block in message.content)
    assert 0 < message.usage.output_tokens <= 24 and message.usage.input_tokens > 0
    assert message.usage.service_tier == "standard"


WEATHER = {
    "name": "weather",
    "input_schema": {
        "type": "object",
        "properties": {"unit": {"type": "string", "enum": ["c", "f"]}, "days": {"type": "integer", "enum": [1, 2, 3]}},
        "required": ["unit", "days"],
        "additionalProperties": False,
    },
}


@check
def tools(client, _):
    """a call that must be made is accumulated by the helper to what comes when it is not streamed; its result goes back"""
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "weather"}):
        over = {"tools": [WEATHER], "tool_choice": choice, "max_tokens": 400}
        with client.messages.stream(**options(**over)) as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_message()
        assert "input_json" in kinds and kinds[-1] == "message_stop", kinds
        answer = whole(client, **over)
        for message in (streamed, answer):
            assert message.stop_reason == "tool_use", message
            (block,) = message.content
            assert (block.type, block.name) == ("tool_use", "weather") and block.id, block
            assert block.input["unit"] in ("c", "f") and block.input["days"] in (1, 2, 3) and len(block.input) == 2
        assert streamed.content[0].input == answer.content[0].input
        result = {"type": "tool_result", "tool_use_id": answer.content[0].id, "content": "warm"}
        told = ASK + [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        assert whole(client, messages=told, tools=[WEATHER]).stop_reason


@check
def structured(client, _):
    """an answer of a schema is parsed by the helpers, streamed and whole, to the same object"""

    class Day(BaseModel):
        unit: Literal["c", "f"]
        warm: bool

    over = {"max_tokens": 200, "output_format": Day}
    with client.messages.stream(**options(**over)) as stream:
        streamed = stream.get_final_message()
    parsed = client.messages.parse(**options(**over))
    assert isinstance(parsed.parsed_output, Day), parsed
    assert streamed.parsed_output == parsed.parsed_output, (streamed, parsed)


@check
def thinking(client, _):
    """the built-in model thinks when it is asked to; the helper accumulates blocks of thinking and text as they come whole"""
    asked = {"model": "millrace-mini", "max_tokens": 1200, "messages": [{"role": "user", "content": "What is 12 + 7?"}]}
    over = asked | {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    with client.messages.stream(**options(**over)) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_message()
    assert "thinking" in kinds and "text" in kinds and kinds.index("thinking") < kinds.index("text"), kinds
    for message in (streamed, whole(client, **over)):
        thought, text = message.content
        assert (thought.type, text.type) == ("thinking", "text") and thought.thinking.strip() and text.text.strip()
        assert (thought.thinking, text.text) == (streamed.content[0].thinking, streamed.content[1].text)
    assert [block.type for block in whole(client, **asked).content] == ["text"], "nobody asked for thoughts"


@check
def streamed_equals_whole(client, _):
    """a streamed message accumulates to the whole one, by the helper and by hand, for several seeds"""
    for seed in range(5):
        extra = {"extra_body": {"seed": seed}}
        answer = whole(client, **extra)
        with client.messages.stream(**options(**extra)) as stream:
            pieces = list(stream.text_stream)
            final = stream.get_final_message()
        assert "".join(pieces) == text_of(final) == text_of(answer), seed
        assert (final.stop_reason, final.stop_sequence) == (answer.stop_reason, answer.stop_sequence)
        assert final.usage.output_tokens == answer.usage.output_tokens
        raw = events(client, **extra)
        deltas = [e.delta.text for e in raw if e.type == "content_block_delta"]
        assert "".join(deltas) == text_of(answer), seed


@check
def order(client, _):
    """events come in their order, each once"""
    kinds = [event.type for event in events(client)]
    assert kinds[:2] == ["message_start", "content_block_start"], kinds
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds
    assert set(kinds[2:-3]) == {"content_block_delta"}, kinds


@check
def stop_sequences(client, _):
    """a stop sequence ends the message before it, is named, and never leaks"""
    full = text_of(whole(client, max_tokens=48))
    stop = full[len(full) // 2 : len(full) // 2 + 3]
    for answer in (
        whole(client, max_tokens=48, stop_sequences=["never to be seen", stop]),
        client.messages.stream(**options(max_tokens=48, stop_sequences=[stop])).__enter__().get_final_message(),
    ):
        assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop)
        assert text_of(answer) == full[: full.index(stop)]


@check
def blocks(client, _):
    """system prompts, blocks, calls of tools with their results, and thinking are taken"""
    tool = {"name": "weather", "description": "Tells it.", "input_schema": {"type": "object", "properties": {}}}
    talk = [
        {"role": "user", "content": [{"type": "text", "text": "Rome?", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "sun"}]},
                {"type": "text", "text": "So?"},
            ],
        },
    ]
    answer = whole(
        client,
        messages=talk,
        system=[{"type": "text", "text": "Be brief."}],
        metadata={"user_id": "u"},
        tools=[tool],
        tool_choice={"type": "auto"},
        thinking={"type": "disabled"},
        service_tier="auto",
    )
    assert answer.stop_reason in ("end_turn", "max_tokens")


def city_weather(told):
    """A tool that notes what it is told."""

    @anthropic.beta_tool
    def weather(city: Literal["Rome", "Oslo"]) -> str:
        """The weather of a city."""
        told.append(city)
        return "sunny"

    return weather


@check
def tool_runner(client, _):
    """the tool runner takes its second turn, streamed and whole: a refused thread is left out"""
    for stream in (False, True):
        told = []
        question = [{"role": "user", "content": "What is the weather in Rome?"}]
        ask = {"model": "millrace-mini", "messages": question, "max_tokens": 200, "extra_body": {"temperature": 0}}
        over = {"tools": [city_weather(told)], "tool_choice": {"type": "any"}, "max_iterations": 2, "stream": stream}
        turns = list(client.beta.messages.tool_runner(**ask, **over))
        turns = [turn.get_final_message() if stream else turn for turn in turns]
        assert len(turns) == 2 and told and set(told) <= {"Rome", "Oslo"}, (turns, told)
        before, after = (turn.usage.input_tokens + turn.usage.cache_read_input_tokens for turn in turns)
        assert after > before, "the whole conversation is sent"


@check
def thread(client, _):
    """a thread is refused with the details that the client's fallback reads"""
    for asked in ({"type": "create"}, {"type": "continue", "previous_message_id": "msg_x"}):
        for ask in (whole, events):
            try:
                ask(client, extra_body={"thread": asked, "temperature": 9})
            except anthropic.BadRequestError as error:
                details = error.body["error"]["details"]
                assert details["error_code"] == "thread_unsupported_request", details
                assert details["unsupported"] == ["thread"], details
            else:
                raise AssertionError("it was accepted")


@check
def prefill(client, _):
    """a last assistant turn is continued: the prompt has it, and no new turn"""
    begun = ASK + [{"role": "assistant", "content": "The answer is ("}]
    count = lambda messages: client.messages.count_tokens(model=MODEL, messages=messages).input_tokens
    assert count(begun) > count(ASK)
    asked_anew = count(begun + [{"role": "user", "content": "x"}])
    assert count(begun) < asked_anew
    assert whole(client, messages=begun).usage.output_tokens > 0


@check
def count_tokens(client, _):
    """tokens are counted as the answer counts them"""
    for talk in (ASK, ASK + [{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]):
        for system in ("Be brief.", "Be long. " * 20):
            counted = client.messages.count_tokens(model=MODEL, messages=talk, system=system).input_tokens
            usage = whole(client, messages=talk, system=system).usage
            assert counted == usage.input_tokens + usage.cache_read_input_tokens
    again = whole(client, system="Be long. " * 20).usage
    assert again.cache_read_input_tokens > 0, "what was seen before is not computed again"


@check
def images(client, server):
    """an image is seen, and counted before"""
    with server.seeing() as model:
        for color in COLORS:
            data = base64.b64encode(square(color)).decode()
            image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
            talk = [{"role": "user", "content": [image, {"type": "text", "text": QUESTION}]}]
            answer = whole(client, model=model, messages=talk, extra_body={"temperature": 0})
            assert color in text_of(answer), (color, answer)
            counted = client.messages.count_tokens(model=model, messages=talk).input_tokens
            assert counted == answer.usage.input_tokens + answer.usage.cache_read_input_tokens


@check
def errors(client, _):
    """wrong requests raise the client's own exceptions, with type, code and the field's name"""
    image = [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x/y"}}]}]
    cases = [
        (anthropic.BadRequestError, {"max_tokens": 0}, "invalid_request_error", "max_tokens"),
        (anthropic.BadRequestError, {"messages": []}, "invalid_request_error", "messages"),
        (anthropic.BadRequestError, {"messages": image}, "invalid_request_error", "messages[0].content[0]"),
        (anthropic.BadRequestError, {"stop_sequences": [""]}, "invalid_request_error", "stop_sequences[0]"),
        (anthropic.BadRequestError, {"extra_body": {"temperature": -1}}, "invalid_request_error", "temperature"),
        (anthropic.BadRequestError, {"messages": [{"role": "user", "content": "word " * 9000}]}, None, "prompt is too long: "),
        (anthropic.NotFoundError, {"model": "no-such-model"}, "not_found_error", "model"),
    ]
    for kind, over, type_, field in cases:
        for ask in (events, whole):
            try:
                ask(client, **over)
            except kind as error:
                assert type_ is None or error.type == type_, error
                assert error.error_code and error.request_id.startswith("req-"), error
                assert field in error.api_message, (field, error.api_message)
            else:
                raise AssertionError(f"{list(over)} was accepted")
    try:
        client.models.retrieve("no-such-model")
    except anthropic.NotFoundError as error:
        assert error.type == "not_found_error"
    else:
        raise AssertionError("it is not there")


@check
def deadline(client, _):
    """a deadline that passes is a 504 before bytes and a `timeout_error` after them"""
    headers = {"extra_headers": {"Request-Timeout-Ms": "5"}}
    try:
        whole(client, **LONG, **headers)
    except anthropic.InternalServerError as error:
        assert (error.status_code, error.type) in ((504, "timeout_error"), (529, "overloaded_error")), error
    else:
        raise AssertionError("the deadline did not fire")
    try:
        events(client, **LONG, **headers)
    except anthropic.APIStatusError as error:
        assert error.type in ("timeout_error", "overloaded_error"), error
    else:
        raise AssertionError("the deadline did not fire")


@check
def cancelled(client, server):
    """a stream that is cancelled raises, after what was made of it"""
    stream = client.messages.create(**options(stream=True) | LONG)
    heard = iter(stream)
    first = next(heard)
    assert first.type == "message_start"
    next(heard)
    name = stream.response.headers["x-stream-id"]
    gone = urllib.request.Request(f"{server.url}/v1/streams/{name}", method="DELETE")
    assert urllib.request.urlopen(gone).status == 202
    try:
        for _ in heard:
            pass
    except anthropic.APIStatusError as error:
        assert error.error_code == "cancelled", error
    else:
        raise AssertionError("it ended as if nothing had happened")


@check
def resumable_stream(client, _):
    """a resumable stream, whose first event sets the reconnection time, gives the whole message"""
    message = client.messages.create(**options())
    with client.messages.stream(**options(extra_headers={"X-Stream-Resumable": "1"})) as stream:
        assert text_of(stream.get_final_message()) == text_of(message)


@check
def abort(client, server):
    """a client that leaves mid-stream leaves nothing running"""
    for _ in range(5):
        with client.messages.stream(**options() | LONG) as stream:
            next(iter(stream))
    server.wait_until_idle()


@check
def many_at_once(_, server):
    """32 streams of the async client at once each give the text they give alone"""

    async def text(client, seed):
        over = {"extra_body": {"seed": seed}}
        async with client.messages.stream(**options(**over)) as stream:
            return await stream.get_final_text()

    async def all_of_them():
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as client:
            alone = [await text(client, seed) for seed in range(32)]
            assert await asyncio.gather(*(text(client, seed) for seed in range(32))) == alone

    asyncio.run(all_of_them())


if __name__ == "__main__":
    run(lambda url: anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=120))
