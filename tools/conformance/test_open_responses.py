"""Responses, and the events of streamed ones, against the types of the Open Responses specification (`openresponses-types`).

The requests are those of its compliance suite: one message, a system message, a tool, an image, several turns; and one for
reasoning and one that is cut short. Run by `cargo xtask conformance`, which sets `TEST_API_BASE_URL`.
"""

import base64
import functools
import inspect
import json
import os
import struct
import zlib

import openresponses_types
import pydantic
import pytest
import requests

URL = f"{os.environ['TEST_API_BASE_URL']}/v1/responses"
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def square():
    """A red square on white, 64 pixels wide, as PNG."""
    dot = lambda x, y: b"\xff\0\0" if 16 <= x < 48 and 16 <= y < 48 else b"\xff\xff\xff"
    rows = b"".join(b"\0" + b"".join(dot(x, y) for x in range(64)) for y in range(64))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64," + base64.b64encode(square()).decode()}
QUESTION = {"type": "input_text", "text": "Which colour is the square?"}
SCENARIOS = {
    "basic": {"input": [{"type": "message", "role": "user", "content": "Say hello."}]},
    "system": {"input": [{"type": "message", "role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]},
    "tool": {"input": "What is the weather in Rome?", "tools": [TOOL], "tool_choice": "required"},
    "turns": {
        "input": [
            {"type": "message", "role": "user", "content": "My name is Ada."},
            {"type": "message", "role": "assistant", "content": "Hello, Ada."},
            {"type": "message", "role": "user", "content": "What is my name?"},
        ]
    },
    "reasoning": {"input": "What is 2 + 3?", "reasoning": {"effort": "high"}},
    # The built-in model reads text only.
    "image": {
        "model": "millrace-mini-vision",
        "input": [{"type": "message", "role": "user", "content": [IMAGE, QUESTION]}],
        "max_output_tokens": 12,
    },
    "short": {"input": "Tell me a story.", "max_output_tokens": 16},
}
WHOLE = openresponses_types.ResponseResource
FIELDS = sorted(WHOLE.model_fields)
ENDS = {"response.completed", "response.incomplete", "response.failed"}


def asked(over):
    """The answer to a request; the built-in model may go on for long where it knows nothing."""
    body = {"model": "millrace-mini", "temperature": 0, "max_output_tokens": 200, **over}
    return requests.post(URL, json=body, timeout=60)


@functools.cache
def response(scenario):
    reply = asked(SCENARIOS[scenario])
    assert reply.status_code == 200, reply.text
    return reply.json()


@functools.cache
def events(scenario):
    reply = asked(SCENARIOS[scenario] | {"stream": True})
    assert reply.status_code == 200, reply.text
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]


@functools.cache
def event_types():
    """The types of events by their names."""
    found = {}
    for name, type_of in inspect.getmembers(openresponses_types, inspect.isclass):
        if name.endswith("StreamingEvent"):
            found |= {str(value): type_of for value in type_of.model_fields["type"].annotation}
    return found


def errors(type_of, value):
    """What is wrong with a value: places and messages."""
    try:
        type_of.model_validate(value)
    except pydantic.ValidationError as wrong:
        return [(error["loc"], error["msg"]) for error in wrong.errors()]
    return []


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_field(scenario, field):
    wrong = [error for error in errors(WHOLE, response(scenario)) if error[0][0] == field]
    assert not wrong, wrong


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_field_at_the_end_of_a_stream(scenario, field):
    last = events(scenario)[-1]
    wrong = [error for error in errors(WHOLE, last["response"]) if error[0][0] == field]
    assert not wrong, wrong


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_events(scenario):
    unknown = {event["type"] for event in events(scenario)} - set(event_types())
    assert not unknown, unknown
    for event in events(scenario):
        # Fields of the response within are tests of their own.
        wrong = [error for error in errors(event_types()[event["type"]], event) if error[0][0] != "response"]
        assert not wrong, (event["type"], wrong)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_order_of_events(scenario):
    kinds = [event["type"] for event in events(scenario)]
    assert kinds[0] == "response.created" and sum(kind in ENDS for kind in kinds) == 1 and kinds[-1] in ENDS
    assert [event["sequence_number"] for event in events(scenario)] == sorted({event["sequence_number"] for event in events(scenario)})


def test_tool_is_called():
    calls = [item for item in response("tool")["output"] if item["type"] == "function_call"]
    assert calls and json.loads(calls[0]["arguments"])["city"] in ("Rome", "Oslo")


def test_image():
    texts = [part["text"] for item in response("image")["output"] if item["type"] == "message" for part in item["content"]]
    assert "red" in "".join(texts)
