"""Engines and gateways that are restarted one after another behind nginx, while resumable streams and new requests go on."""

import asyncio
import dataclasses
import itertools

import openai

from processes import get_json, until
from rows import judged, row
from streams import Received, ResumingReader, http_client, read_openai

# Of new requests, and how many clients send them: each is over before a gateway must end.
SHORT_TOKENS, ASKERS = 12, 4


async def always_open(is_over, questions, read, opened):
    """One stream after another until `is_over`; all that were opened are added to `opened`."""
    for question in itertools.cycle(questions):
        if is_over.is_set():
            return
        received = Received(question)
        opened.append(received)
        await read(received)


def open_streams(cluster, name):
    """Streams that a gateway has open."""
    place = cluster.url(name).removeprefix("http://")
    found = [i for i in get_json(f"{cluster.url(name)}/v1/cluster")["instances"] if i["address"] == place and i["state"] == "alive"]
    return found[0]["streams"]["open"]


async def restart_all(cluster, opened):
    for name in cluster.engines + cluster.gateways:
        if name in cluster.gateways:
            # Streams are there to be handed over.
            await until(f"{name} has streams", lambda name=name: open_streams(cluster, name) > 0)
        await cluster.call("stop", name)
        await cluster.call("start", name)
        # The new process is used before the next one ends.
        await until("the gateways see all engines", cluster.all_are_there)
        before = opened()
        await until("new requests", lambda before=before: opened() >= before + ASKERS)


@row("engines and gateways restarted one after another behind nginx", short=True)
async def rolling_restart(bench):
    cluster = bench.cluster
    url = cluster.url("nginx")
    is_over, resuming, asked = asyncio.Event(), [], []
    short = [dataclasses.replace(question, tokens=SHORT_TOKENS) for question in bench.questions]
    sdk = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=900)
    async with http_client() as client, sdk:
        # As many resumable streams as ever are open all the time; and new requests by the package, which retries nothing.
        tasks = [
            asyncio.create_task(always_open(is_over, [question], lambda one: ResumingReader(client, [url], one).run(), resuming))
            for question in bench.questions
        ]
        tasks += [
            asyncio.create_task(always_open(is_over, short[n:], lambda one: read_openai(sdk, one), asked)) for n in range(ASKERS)
        ]
        await restart_all(cluster, lambda: len(asked))
        is_over.set()
        await asyncio.gather(*tasks)
    return judged_roll(bench, resuming, asked)


def judged_roll(bench, resuming, asked):
    streams = bench.streams(slice(0))
    streams.received = resuming
    failed = [r.error for r in asked if r.error]
    of = {question.number: text for question, text in bench.expected.items()}
    wrong = [r for r in asked if not r.error and not of[r.question.number].startswith(r.text)]
    more = [(True, f"new request: {error}") for error in failed[:3]] + [(bool(wrong), "new requests: other text")]
    resumed = sum(r.connections > 1 for r in resuming)
    seen = f"{resumed} streams resumed, {len(bench.questions)} open at a time"
    return judged(streams, more, f"{seen}; new requests: {len(failed)} failed, {len(wrong)} wrong of {len(asked)}")
