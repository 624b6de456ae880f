"""Clients: the unmodified `openai` package, and a reader that resumes with `Last-Event-ID`."""

import asyncio
import dataclasses
import datetime
import json
import time

import httpx2 as httpx
import openai

MODEL = "millrace-mini"
ANIMALS = ["an owl", "a fox", "a hen", "a cat", "a dog", "a goat", "a duck", "a horse"]
THINGS = ["a kite", "a lantern", "a boat", "a drum", "a basket", "a coat", "a bell"]


def http_client():
    """A client with a connection of its own for each stream; no certificates are read for `http`."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=900, limits=limits, trust_env=False, verify=False)


@dataclasses.dataclass(frozen=True)
class Question:
    """A request whose answer is always the same: greedy, or with a seed."""

    number: int
    tokens: int
    model: str = MODEL

    def body(self):
        animal, thing = ANIMALS[self.number % len(ANIMALS)], THINGS[self.number % len(THINGS)]
        asked = [{"role": "user", "content": f"Write a long story about {animal} and {thing}."}]
        temperature = 1.0 if self.number % 2 else 0.0
        sampling = {"seed": self.number, "temperature": temperature, "max_tokens": self.tokens, "ignore_eos": True}
        return {"model": self.model, "messages": asked, "stream": True, **sampling}


@dataclasses.dataclass
class Received:
    """What a client has of a stream. `finish` is the reason of the end; `error` is the exception, or the error event."""

    question: Question
    text: str = ""
    finish: str | None = None
    error: str | None = None
    id: str | None = None
    connections: int = 0
    # When the events with text came.
    times: list = dataclasses.field(default_factory=list)
    # How many of them had come when each connection began to tell.
    starts: list = dataclasses.field(default_factory=list)

    def add(self, text, finish):
        self.times.append(time.monotonic())
        self.text += text or ""
        self.finish = finish or self.finish


async def read_openai(client, received, headers=None):
    """One stream with the package, over one connection."""
    body = received.question.body()
    extra = {"ignore_eos": body.pop("ignore_eos")}
    received.connections += 1
    try:
        answer = await client.chat.completions.create(**body, extra_body=extra, extra_headers=headers)
        received.id = answer.response.headers.get("x-stream-id")
        async for chunk in answer:
            for choice in chunk.choices:
                received.add(choice.delta.content, choice.finish_reason)
            # One stream whose events are all there must not hold up the faults.
            await asyncio.sleep(0)
    except Exception as error:  # whatever it is: the row says which
        received.error = f"{type(error).__name__}: {error}"


# A reader that was refused so often in a row, over a minute or more, gives up.
REFUSALS_MAX = 400


class ResumingReader:
    """One stream with `X-Stream-Resumable`, continued over a new connection where one breaks, at the next address."""

    def __init__(self, client, urls, received):
        self.client, self.urls, self.received = client, urls, received
        self.cursor = None
        self.is_done = False
        self.refused = []

    async def run(self):
        # A stream that is not there yet for the next gateway is asked for again, as an EventSource does.
        turn = 0
        while not self.is_done:
            url = self.urls[turn % len(self.urls)]
            turn += 1
            try:
                await self.read(url)
            except (httpx.TransportError, OSError) as error:
                self.refused.append(f"{type(error).__name__} at {url}")
            if len(self.refused) > REFUSALS_MAX:
                self.end_with(f"refused {len(self.refused)} times, last: {self.refused[-1]}")
            if not self.is_done:
                await asyncio.sleep(0.25)

    def request(self, url):
        if self.received.id is None:
            return self.client.stream(
                "POST", f"{url}/v1/chat/completions", json=self.received.question.body(), headers={"x-stream-resumable": "1"}
            )
        path = f"{url}/v1/streams/{self.received.id}/events"
        return self.client.stream("GET", path, headers={"last-event-id": self.cursor} if self.cursor else {})

    async def read(self, url):
        self.received.connections += 1
        async with self.request(url) as reply:
            if reply.status_code == 204:
                self.is_done = True
            elif reply.status_code == 200:
                self.received.id = self.received.id or reply.headers["x-stream-id"]
                self.received.starts.append(len(self.received.times))
                self.refused.clear()
                await self.read_events(reply)
            else:
                body = (await reply.aread()).decode(errors="replace")
                self.refused.append(f"{reply.status_code} at {url}: {body[:200]}")
                # `recovering`, or a gateway that shuts down; all else is an end.
                if reply.status_code not in (502, 503):
                    at = f"{datetime.datetime.now(datetime.UTC):%H:%M:%S.%f}, connection {self.received.connections}, after {self.cursor}"
                    self.end_with(f"{reply.status_code} at {at}: {body[:300]}")

    async def read_events(self, reply):
        rest = b""
        async for part in reply.aiter_raw():
            *events, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                self.take(event.decode())
                if self.is_done:
                    return
                await asyncio.sleep(0)

    def take(self, event):
        fields = [line.partition(":")[::2] for line in event.split("\n") if line and not line.startswith(":")]
        data = "\n".join(value.removeprefix(" ") for name, value in fields if name == "data")
        for name, value in fields:
            if name == "id":
                self.cursor = value.removeprefix(" ")
        if data == "[DONE]":
            self.is_done = True
        elif data:
            message = json.loads(data)
            if error := message.get("error"):
                self.end_with(json.dumps(error))
            for choice in message.get("choices", []):
                self.received.add(choice["delta"].get("content"), choice["finish_reason"])

    def end_with(self, error):
        self.received.error = error
        self.is_done = True


class Streams:
    """Streams that are open at the same time."""

    def __init__(self, questions, expected):
        self.received = [Received(question) for question in questions]
        self.expected = expected
        self.tasks, self.clients, self.readers = [], [], []

    def open_openai(self, urls, headers=None, retries=0):
        """One task for each stream, at the addresses in turn."""
        clients = [openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=retries, timeout=900) for url in urls]
        self.clients += clients
        for number, received in enumerate(self.received):
            client = clients[number % len(clients)]
            self.tasks.append(asyncio.create_task(read_openai(client, received, headers)))
        return self

    def open_resuming(self, urls, cursors=()):
        """Readers that begin at the first address; with `cursors` in the midst of their streams."""
        client = http_client()
        self.clients.append(client)
        self.readers = [ResumingReader(client, urls, received) for received in self.received]
        for reader, cursor in zip(self.readers, cursors):
            reader.cursor = cursor
        self.tasks += [asyncio.create_task(reader.run()) for reader in self.readers]
        return self

    def part(self):
        """What the clients have, of all that they will have."""
        received = sum(len(r.text) for r in self.received)
        return received / max(1, sum(len(self.expected[r.question]) for r in self.received))

    async def until(self, part):
        """Waits until the clients have this part, or all have ended."""
        while self.part() < part and not all(task.done() for task in self.tasks):
            await asyncio.sleep(0.02)

    async def finish(self):
        await asyncio.gather(*self.tasks)
        for client in self.clients:
            await (client.aclose() if isinstance(client, httpx.AsyncClient) else client.close())
        return self

    def broken(self):
        return [r for r in self.received if r.error]

    def wrong(self):
        """Streams that have ended well with another text than that of an undisturbed process."""
        return [r for r in self.received if not r.error and (r.text != self.expected[r.question] or r.finish != "length")]

    def differing_beginnings(self):
        """Streams whose text, whole or not, is not the beginning of the expected one."""
        return [r for r in self.received if not self.expected[r.question].startswith(r.text)]

    def longest_pause(self):
        pauses = (after - before for r in self.received for before, after in zip(r.times, r.times[1:]))
        return max(pauses, default=0.0)
