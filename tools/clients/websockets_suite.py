"""The `websockets` client, unmodified, against a running server.

    python websockets_suite.py PATH-OF-THE-MILLRACE-BINARY
"""

import asyncio
import json
import sys
import tempfile
import urllib.request

import websockets

from suite import Server

JOB = {"prompt": "Say anything.", "max_tokens": 40, "seed": 7, "ignore_eos": True}


async def ended(socket, names):
    """What each stream said, up to its ending."""
    said, streams, open_streams = {name: [] for name in names}, {}, set(names)
    while open_streams:
        message = json.loads(await asyncio.wait_for(socket.recv(), 60))
        if message["type"] == "opened":
            streams[message["stream"]] = message["request"]
        elif "stream" in message:
            name = streams[message["stream"]]
            assert name in open_streams, f"{name} goes on after its ending: {message}"
            said[name].append(message)
            if message["type"] == "ended":
                open_streams.remove(name)
    return said, {name: stream for stream, name in streams.items()}


def text(messages):
    return "".join(m["t"] for m in messages if m["type"] == "token")


async def three_at_once(url):
    """three streams at once give the text that each gives alone, over SSE too"""
    address = url.replace("http", "ws") + "/v1/realtime/streams"
    async with websockets.connect(address) as socket:
        assert json.loads(await socket.recv())["type"] == "welcome"
        for seed, name in enumerate("abc"):
            await socket.send(json.dumps({"type": "open", "request": name, "body": JOB | {"seed": seed}}))
        said, streams = await ended(socket, "abc")
    for name, messages in said.items():
        assert messages[-1]["reason"] == "MAX_TOKENS", messages[-1]
        with urllib.request.urlopen(f"{url}/v1/streams/{streams[name]}/events") as reply:
            frames = [line[6:] for line in reply.read().decode().splitlines() if line.startswith("data: {")]
        again = "".join(f["t"] for f in map(json.loads, frames) if f["type"] == "token")
        assert again == text(messages), name
    assert len({text(messages) for messages in said.values()}) == 3


async def cancel(url):
    """a cancelled stream says so, once"""
    address = url.replace("http", "ws") + "/v1/realtime/streams"
    async with websockets.connect(address) as socket:
        await socket.recv()
        await socket.send(json.dumps({"type": "open", "request": "a", "acks": "explicit", "body": JOB | {"max_tokens": 1500}}))
        stream = json.loads(await socket.recv())["stream"]
        await socket.send(json.dumps({"type": "cancel", "stream": stream}))
        last = {}
        while last.get("type") != "ended":
            last = json.loads(await asyncio.wait_for(socket.recv(), 60))
        assert last["reason"] == "CANCELLED", last


def main():
    checks = [three_at_once, cancel]
    with tempfile.TemporaryDirectory() as folder:
        server = Server(sys.argv[1], folder)
        try:
            for check in checks:
                asyncio.run(check(server.url))
                print(f"ok    {check.__name__}: {check.__doc__}")
        finally:
            stopped = server.stop()
    sys.exit(stopped)


if __name__ == "__main__":
    main()
