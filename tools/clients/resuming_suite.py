"""`clients/python` against a running server, through connections that are cut and a server that is killed.

    python resuming_suite.py PATH-OF-THE-MILLRACE-BINARY

The client of OpenAI is unmodified, with the client of httpx as its only changed argument.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "clients" / "python" / "src"))

import httpx
import millrace_client
import openai
from cutting_proxy import CuttingProxy
from millrace_client import Patience, StreamLost
from suite import MODEL, check, run

MESSAGES = [{"role": "user", "content": "Hello"}]
BODY = {"model": MODEL, "messages": MESSAGES, "max_tokens": 60, "temperature": 0, "extra_body": {"ignore_eos": True}}
# Bytes of bodies after which connections are cut: at the beginning, and anywhere in and between events.
CUTS = [[0, 0, 0], [1, 1], [11, 300, 0, 411]] + [[random.Random(seed).randrange(6000 // seed) for _ in range(10)] for seed in range(1, 6)]
# Many cuts in a row must not take long.
PATIENCE = Patience(pause_max_s=0.02)


def chat(client, **over):
    """The choices of a streamed chat: text and ends of each."""
    found = {}
    for chunk in client.chat.completions.create(**{**BODY, **over}, stream=True):
        for choice in chunk.choices:
            text, ends = found.get(choice.index, ("", ()))
            ended = (choice.finish_reason,) if choice.finish_reason else ()
            found[choice.index] = (text + (choice.delta.content or ""), ends + ended)
    return found


def responses(client):
    text, kinds, whole = "", [], None
    body = {"model": MODEL, "input": "Hello", "max_output_tokens": 60, "temperature": 0, "extra_body": {"ignore_eos": True}}
    for event in client.responses.create(**body, stream=True):
        kinds.append(event.sequence_number)
        text += event.delta if event.type == "response.output_text.delta" else ""
        whole = event.response.output_text if event.type in ("response.completed", "response.incomplete") else whole
    assert kinds == sorted(set(kinds)), kinds
    assert whole == text, (whole, text)
    return text


def messages(client):
    """The text of a message in Anthropic's protocol, whose client does not take httpx."""
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 60, "temperature": 0, "ignore_eos": True, "stream": True}
    with client.stream("POST", "/v1/messages", json=body) as response:
        events = [json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line.startswith("data: ")]
    names = [event["type"] for event in events]
    assert all(names.count(name) == 1 for name in ("message_start", "content_block_start", "message_stop")), names
    return "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")


def openai_of(url, **options):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, **options)


def plain_client(url, http_client=None):
    client = http_client or httpx.Client()
    client.base_url = url
    return client


def proxy_of(server):
    return CuttingProxy(int(server.url.rsplit(":", 1)[1]))


def through_cuts(server, make_client, read):
    """What `read` returns through every row of `CUTS` is what it returns without a cut."""
    whole = read(make_client(server.url))
    proxy, total = proxy_of(server), 0
    for cuts in CUTS:
        proxy.cut(cuts)
        found = read(make_client(proxy.url, http_client=millrace_client.http_client(PATIENCE)))
        assert found == whole, (cuts, found, whole)
        assert proxy.done > 0, f"nothing was cut: {cuts}"
        total += proxy.done
    print(f"      {total} connections cut")
    return whole


@check
def openai_chat(_, server):
    """openai: chat completions are whole through cuts, with one end"""
    whole = through_cuts(server, openai_of, chat)
    assert whole[0][1] == ("length",) and whole[0][0], whole


@check
def openai_choices(_, server):
    """openai: several choices with chance are whole through cuts"""
    whole = through_cuts(server, openai_of, lambda client: chat(client, n=3, temperature=1, seed=7))
    assert len(whole) == 3 and all(ends == ("length",) for _, ends in whole.values()), whole


@check
def openai_responses(_, server):
    """openai: responses are whole through cuts, with each sequence number once"""
    assert through_cuts(server, openai_of, responses)


@check
def anthropic_messages(_, server):
    """httpx: messages of Anthropic's protocol are whole through cuts, with one start and one end"""
    assert through_cuts(server, plain_client, messages)


@check
def plain_client_loses(_, server):
    """openai without the changed argument reports the same cut as an error"""
    proxy = proxy_of(server)
    proxy.cut([411])
    with contextlib.suppress(openai.APIError, httpx.TransportError):
        chat(openai_of(proxy.url))
        raise AssertionError("nothing was cut")


@check
def openai_asynchronous(_, server):
    """openai's asynchronous client: whole through cuts"""

    async def read(url):
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=millrace_client.async_http_client(PATIENCE))
        stream = await client.chat.completions.create(**BODY, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    whole, proxy = chat(openai_of(server.url))[0][0], proxy_of(server)
    for cuts in CUTS:
        proxy.cut(cuts)
        assert asyncio.run(read(proxy.url)) == whole, cuts


@check
def events_of_a_stream(_, server):
    """stream and attach: each event once through cuts, and from each position on"""
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "stream": True}
    proxy = proxy_of(server)
    proxy.cut([700, 600, 500, 400, 300, 2000])
    events = list(millrace_client.stream(f"{proxy.url}/v1/chat/completions", body))
    assert [event.data for event in events].count("[DONE]") == 1 and events[-1].data == "[DONE]"
    text = [json.loads(event.data)["choices"][0]["delta"].get("content") or "" for event in events[:-1]]
    for at, event in enumerate(events):
        if event.id is None:
            continue
        rest = millrace_client.attach(server.url, events[0].stream, after=event.id)
        rest = [json.loads(event.data)["choices"][0]["delta"].get("content") or "" for event in rest if event.data != "[DONE]"]
        assert "".join(text[: at + 1] + rest) == "".join(text), event.id


@check
def left_stream_is_cancelled(_, server):
    """a stream that is closed before its end is cancelled at the server, as a plain one is"""
    client = openai_of(server.url, http_client=millrace_client.http_client())
    stream = client.chat.completions.create(**{**BODY, "max_tokens": 1500}, stream=True)
    next(iter(stream))
    stream_id = stream.response.headers["x-stream-id"]
    stream.close()
    server.wait_until_idle()
    with urllib.request.urlopen(f"{server.url}/v1/streams/{stream_id}") as reply:
        description = json.load(reply)
    assert description["state"] == "ended" and "cancelled" in json.dumps(description), description


@check
def unreachable_server(_, server):
    """a server that does not come back is an error of httpx, after the time that was given"""
    proxy = proxy_of(server)
    proxy.cut([411] + [0] * 100)
    began = time.monotonic()
    patience = Patience(total_s=1, pause_max_s=0.2)
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 60, "stream": True}
    client = millrace_client.http_client(patience)
    with client.stream("POST", f"{proxy.url}/v1/chat/completions", json=body) as response:
        try:
            response.read()
        except StreamLost as lost:
            assert "no new event" in str(lost), lost
        else:
            raise AssertionError("no error")
    assert time.monotonic() - began < 20


def serve(bind, folder):
    """A server with a journal, whose process can be killed."""
    variables = os.environ | {"XDG_CACHE_HOME": folder, "XDG_DATA_HOME": folder, "MILLRACE_JOURNAL_DIRECTORY": f"{folder}/journal"}
    command = [sys.argv[1], "serve", "--bind", bind, "--deterministic"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
    for line in process.stdout:
        if " serves " in line:
            return process, line[line.index("http://") :].split()[0]
    raise RuntimeError("the server stopped before it listened")


@check
def killed_server(_, __):
    """openai: an answer is whole through three kills -9 of the server, which has a journal"""
    body = {**BODY, "model": "millrace-mini", "max_tokens": 600}
    with tempfile.TemporaryDirectory() as folder:
        process, url = serve("127.0.0.1:0", folder)
        try:
            whole = chat(openai_of(url), **body)
            client, text, ends = openai_of(url, http_client=millrace_client.http_client()), "", []
            # Parts of the text, not numbers of chunks: what waits for a reader is sent as one chunk.
            kills = [part * len(whole[0][0]) for part in (0, 1 / 8, 1 / 4)]
            for chunk in client.chat.completions.create(**body, stream=True):
                text += chunk.choices[0].delta.content or ""
                ends += [chunk.choices[0].finish_reason] * bool(chunk.choices[0].finish_reason)
                while kills and len(text) > kills[0]:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    process, _ = serve(url.removeprefix("http://"), folder)
                    kills.pop(0)
            assert (kills, ends) == ([], ["length"]), (kills, ends)
            assert text == whole[0][0]
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    run(lambda url: url)
