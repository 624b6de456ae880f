"""The official `openai` client's responses and embeddings, unmodified, against a running server.

    python openai_responses_suite.py PATH-OF-THE-MILLRACE-BINARY

Random weights give random text: what is checked is form, equality and endings, never wit.
"""

import array
import base64
import math

import openai
from pydantic import BaseModel
from standardwebhooks import Webhook

from receiver import SECRET, Receiver
from suite import MODEL, check, run

ASK = "Say anything — é, 漢, 🙂."


def create(client, **options):
    return client.responses.create(**({"model": MODEL, "input": ASK, "max_output_tokens": 24} | options))


def seeded(seed=7, **extra):
    return {"extra_body": {"seed": seed} | extra}


@check
def streamed_equals_whole(client, _):
    """typed events in order concatenate to the whole response, for several seeds"""
    for seed in range(4):
        whole = create(client, **seeded(seed))
        events = list(create(client, stream=True, **seeded(seed)))
        kinds = [event.type for event in events]
        assert kinds[:4] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ], kinds
        ends = ["response.output_text.done", "response.content_part.done", "response.output_item.done"]
        assert kinds[-4:-1] == ends and kinds[-1] == f"response.{whole.status}", kinds
        numbers = [event.sequence_number for event in events]
        assert numbers == sorted(set(numbers)), numbers
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == whole.output_text == events[-1].response.output_text
        # What was cached is another matter.
        told, same = events[-1].response.usage, whole.usage
        assert (told.input_tokens, told.output_tokens) == (same.input_tokens, same.output_tokens)


@check
def stream_helper(client, _):
    """`responses.stream` gives its final response"""
    with client.responses.stream(
        model=MODEL, input=ASK, max_output_tokens=24, extra_body=seeded()["extra_body"]
    ) as stream:
        events = list(stream)
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == create(client, **seeded()).output_text


@check
def parsed_helper(client, _):
    """`responses.parse` parses what a schema asked for"""

    class Answer(BaseModel):
        yes: bool

    parsed = client.responses.parse(model=MODEL, input=ASK, max_output_tokens=200, text_format=Answer)
    assert isinstance(parsed.output_parsed, Answer), parsed


WEATHER = {
    "type": "function",
    "name": "weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"days": {"type": "integer", "enum": [1, 2, 3]}},
        "required": ["days"],
        "additionalProperties": False,
    },
}


@check
def accumulated_helper(client, _):
    """`responses.stream` accumulates a call, an object and thoughts to what comes when they are not streamed"""

    class Answer(BaseModel):
        yes: bool

    def both(**options):
        options = {"max_output_tokens": 400, **seeded()} | options
        with client.responses.stream(**options) as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_response()
        parsed = client.responses.parse(**options)
        alike = lambda response: [item.model_dump(exclude={"id", "call_id"}) for item in response.output]
        assert alike(streamed) == alike(parsed), (streamed.output, parsed.output)
        return kinds, streamed

    kinds, streamed = both(model=MODEL, input=ASK, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False)
    (call,) = streamed.output
    assert "response.function_call_arguments.delta" in kinds and call.parsed_arguments["days"] in (1, 2, 3), call
    _, streamed = both(model=MODEL, input=ASK, text_format=Answer)
    assert isinstance(streamed.output_parsed, Answer), streamed
    _, streamed = both(model="millrace-mini", input="What is 12 + 7?", reasoning={"effort": "high"})
    assert [item.type for item in streamed.output] == ["reasoning", "message"], streamed.output


@check
def conversation(client, _):
    """previous_response_id goes on; items of an answer are items of the next question"""
    first = create(client, **seeded())
    second = create(client, input="And?", previous_response_id=first.id, **seeded(8))
    items = [{"role": "user", "content": ASK}, *first.output, {"role": "user", "content": "And?"}]
    same = create(client, input=items, **seeded(8))
    assert second.output_text == same.output_text and second.usage.input_tokens == same.usage.input_tokens
    listed = client.responses.input_items.list(second.id)
    assert [item.content[0].text for item in listed] == ["And?"]


@check
def kept(client, _):
    """retrieve, delete, and not found"""
    made = create(client)
    assert client.responses.retrieve(made.id).model_dump() == made.model_dump()
    client.responses.delete(made.id)
    try:
        client.responses.retrieve(made.id)
    except openai.NotFoundError:
        pass
    else:
        raise AssertionError("it was deleted")


@check
def background(client, _):
    """a response in the background is followed from any event, and can be cancelled"""
    made = create(client, background=True, max_output_tokens=400, **seeded(ignore_eos=True))
    assert made.status in ("queued", "in_progress"), made
    events = list(client.responses.retrieve(made.id, stream=True))
    assert events[-1].response.output_text == client.responses.retrieve(made.id).output_text
    at = len(events) // 2
    rest = list(client.responses.retrieve(made.id, stream=True, starting_after=events[at].sequence_number))
    text = lambda some: "".join(e.delta for e in some if e.type == "response.output_text.delta")
    assert text(events[: at + 1]) + text(rest) == events[-1].response.output_text
    long = create(client, background=True, max_output_tokens=1500, **seeded(ignore_eos=True))
    assert client.responses.cancel(long.id).status in ("cancelled", "incomplete")


@check
def wrong(client, _):
    """wrong requests raise the client's own exceptions, and name the field"""
    for options, param in [
        ({"input": []}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
        ({"truncation": "last"}, "truncation"),
    ]:
        try:
            create(client, **options)
        except openai.BadRequestError as error:
            assert error.param == param, (error.param, param)
        else:
            raise AssertionError(f"{param}: accepted")


@check
def embeddings(client, _):
    """vectors of length 1, the same as base64 and as floats, alone and beside others"""
    texts = ["rivers", "mills", "rivers"]
    plain = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    # Floats come in as few digits as name an f32.
    single = lambda vector: array.array("f", vector).tolist()
    vectors = [single(entry.embedding) for entry in plain.data]
    assert vectors[0] == vectors[2] != vectors[1]
    for vector in vectors:
        assert abs(math.hypot(*vector) - 1) < 1e-5
    # Left to itself the client asks for base64.
    assert client.embeddings.create(model=MODEL, input="rivers").data[0].embedding == vectors[0]
    raw = client.embeddings.create(model=MODEL, input="rivers", encoding_format="base64").data[0].embedding
    assert array.array("f", base64.b64decode(raw)).tolist() == vectors[0]
    short = client.embeddings.create(model=MODEL, input="rivers", dimensions=8, encoding_format="float").data[0].embedding
    assert len(short) == 8 and abs(math.hypot(*short) - 1) < 1e-5
    assert plain.usage.prompt_tokens > 0


@check
def ended_background_response_sends_an_event(client, _):
    """the event is verified by `client.webhooks` and by `standardwebhooks`, and a changed one is rejected"""
    receiver = Receiver()
    response = create(client, background=True, **seeded(webhook=receiver.url))
    headers, body = receiver.received.get(timeout=60)
    event = client.webhooks.unwrap(body, headers, secret=SECRET)
    assert event.type == "response.incomplete" and event.data.id == response.id, event
    lower = {name.lower(): value for name, value in headers.items()}
    assert Webhook(SECRET).verify(body, lower)["id"] == event.id
    try:
        client.webhooks.unwrap(body + " ", headers, secret=SECRET)
        raise AssertionError("a changed body was accepted")
    except openai.InvalidWebhookSignatureError:
        pass
    assert client.responses.retrieve(response.id).status == "incomplete"


if __name__ == "__main__":
    run(lambda url: openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120))
