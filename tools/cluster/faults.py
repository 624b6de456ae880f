"""The faults, and what clients must see of each. A row returns what it saw, and what of that must not be."""

import asyncio
import dataclasses
import itertools
import shutil
import signal

from processes import Cluster, until
from streams import Received, ResumingReader, Streams, httpx

ROWS = []
RESUMABLE = {"x-stream-resumable": "1"}
# Of new requests during a rolling restart, and how many clients send them.
SHORT_TOKENS, ASKERS = 12, 4
# How the `openai` package tells that a connection ended.
CONNECTION_ERRORS = {"APIConnectionError", "RemoteProtocolError", "ReadError"}
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


def row(name, short=False):
    """Registers a fault; `short`: part of the short form."""

    def register(function):
        ROWS.append((name, function, short))
        return function

    return register


@dataclasses.dataclass
class Bench:
    cluster: Cluster
    questions: list
    expected: dict
    outage_s: float

    def streams(self, part=slice(None)):
        return Streams(self.questions[part], self.expected)


def judged(streams, more=(), seen=""):
    """What must hold where nothing may reach a client but a pause."""
    broken, wrong = streams.broken(), streams.wrong()
    problems = [f"stream {r.question.number}: {r.error}" for r in broken[:3]]
    problems += [f"stream {r.question.number} has another text, or ended by {r.finish}" for r in wrong[:3]]
    problems += [what for is_bad, what in more if is_bad]
    text = f"{len(broken)} broken, {len(wrong)} wrong of {len(streams.received)}; longest pause {streams.longest_pause():.1f} s"
    return f"{text}{seen and '; '}{seen}", problems


def counted(cluster, name):
    """How a metric of the gateways has grown since now."""
    before = cluster.metrics(name)
    return lambda: cluster.metrics(name) - before


@row("nothing")
async def nothing(bench):
    streams = await bench.streams().open_openai([bench.cluster.front]).finish()
    return judged(streams)


@row("engine killed, then another one", short=True)
async def engine_killed(bench):
    cluster = bench.cluster
    moved = counted(cluster, "millrace_relay_resubmitted_total")
    streams = bench.streams().open_openai([cluster.front])
    await streams.until(0.2)
    killed = cluster.busiest_engine()
    await cluster.kill(killed)
    await streams.until(0.4)
    await cluster.call("start", killed)
    await streams.until(0.6)
    await cluster.kill(cluster.busiest_engine())
    await streams.finish()
    return judged(streams, [(moved() == 0, "no request was on the engines")], f"{moved():.0f} requests moved")


@row("engine stopped (SIGSTOP), then continued", short=True)
async def engine_stopped(bench):
    cluster = bench.cluster
    names = ["millrace_relay_resubmitted_total", "millrace_relay_stale_total", "millrace_relay_diverged_total"]
    moved, stale, diverged = (counted(cluster, name) for name in names)
    streams = bench.streams().open_openai([cluster.front])
    await streams.until(0.2)
    stopped = cluster.busiest_engine()
    cluster.signal(stopped, signal.SIGSTOP)
    # Its requests are moved when it is silent for 3 s; then it comes back, perhaps while they run elsewhere.
    await until("requests are moved", lambda: moved() > 0)
    cluster.signal(stopped, signal.SIGCONT)
    await streams.finish()
    # What the engine had computed before the stop arrives now.
    more = [(moved() == 0, "no request was on the engine"), (diverged() > 0, "attempts with different tokens")]
    return judged(streams, more, f"{moved():.0f} requests moved, {stale():.0f} late messages ignored")


async def gateway_fault(bench, fault, back):
    """Half of the clients are openai's, half can resume; all of the second gateway's are undisturbed."""
    cluster = bench.cluster
    first, second = (cluster.url(gateway) for gateway in cluster.gateways[:2])
    plain = bench.streams(slice(0, None, 4)).open_openai([first])
    others = bench.streams(slice(1, None, 4)).open_openai([second])
    resuming = bench.streams(slice(2, None, 2)).open_resuming([first, second])
    await resuming.until(0.3)
    await fault()
    await others.finish()
    await resuming.finish()
    await back()
    await plain.finish()
    return plain, others, resuming


def judged_gateway(plain, others, resuming, seen=""):
    texts, problems = judged(resuming)
    problems += [f"at the other gateway: {what}" for what in judged(others)[1]]
    problems += [f"openai, stream {r.question.number}: other text" for r in plain.differing_beginnings()]
    kinds = sorted({r.error.split(":")[0] for r in plain.broken()})
    problems += [f"openai: {kind}" for kind in kinds if kind not in CONNECTION_ERRORS]
    once = sum(r.connections == 1 for r in resuming.received)
    if once == len(resuming.received):
        problems.append("no stream was resumed")
    counts = f"openai: {len(plain.broken())} of {len(plain.received)} with {', '.join(kinds) or 'no error'}"
    return f"{counts}; resumed: {texts}{seen and '; '}{seen}", problems


@row("gateway killed", short=True)
async def gateway_killed(bench):
    cluster = bench.cluster

    async def restart():
        await cluster.call("start", "gateway-1")

    return judged_gateway(*await gateway_fault(bench, lambda: cluster.kill("gateway-1"), restart))


async def told_twice(bench, resuming):
    """Streams that two gateways tell differently, both sides asked for the whole."""
    urls = [bench.cluster.url(gateway) for gateway in bench.cluster.gateways[:2]]
    different = []
    async with httpx.AsyncClient(timeout=300, trust_env=False) as client:
        for received in resuming.received:
            for url in urls:
                again = Received(received.question, id=received.id)
                await ResumingReader(client, [url], again).run()
                is_honest = again.error and "stream_diverged" in again.error
                if again.text != bench.expected[received.question] and not is_honest:
                    different.append(f"stream {received.question.number} at {url}: {again.error or 'other text'}")
    return different


@row("gateway cut off (SIGSTOP), its streams resumed elsewhere, then back", short=True)
async def gateway_cut_off(bench):
    cluster = bench.cluster
    first, second = (cluster.url(gateway) for gateway in cluster.gateways[:2])
    resuming = bench.streams(slice(0, None, 2)).open_resuming([first, second])
    await resuming.until(0.3)
    cluster.signal("gateway-1", signal.SIGSTOP)
    # The clients' network notices, not the clients: their connections end, and they come to the second gateway.
    for task in resuming.tasks:
        task.cancel()
    await asyncio.gather(*resuming.tasks, return_exceptions=True)
    cut = [reader for reader in resuming.readers if not reader.is_done]
    for reader in cut:
        reader.urls = [second]
    resuming.tasks = [asyncio.create_task(reader.run()) for reader in resuming.readers if not reader.is_done]
    await resuming.until(0.6)
    cluster.signal("gateway-1", signal.SIGCONT)
    await resuming.finish()
    different = await told_twice(bench, resuming)
    more = [(not cut, "no stream was cut"), *((True, what) for what in different[:3])]
    return judged(resuming, more, f"{len(cut)} streams cut, {len(different)} told differently by the two gateways")


async def records_of(cluster, subjects):
    """Waits until the records of so many streams are in JetStream."""
    await until(f"{subjects} streams in JetStream", lambda: (cluster.records() or {}).get("num_subjects", 0) >= subjects)
    return cluster.records()


async def nats_fault(bench, fault, back, is_wiped=False):
    """Durable streams while NATS has a fault; afterwards the records alone must tell each of them."""
    cluster = bench.cluster
    before = 0 if is_wiped else (cluster.records() or {}).get("num_subjects", 0)
    first, second = (cluster.url(gateway) for gateway in cluster.gateways[:2])
    streams = bench.streams().open_openai([first], headers=RESUMABLE)
    await streams.until(0.3)
    await fault()
    await back(streams)
    await streams.finish()
    records = await records_of(cluster, before + len(streams.received))
    # The owner dies: what another gateway tells now is from the records.
    await cluster.kill("gateway-1")
    lost = []
    async with httpx.AsyncClient(timeout=300, trust_env=False) as client:
        for received in streams.received:
            again = Received(received.question, id=received.id)
            await ResumingReader(client, [second], again).run()
            if again.text != bench.expected[received.question]:
                lost.append(f"stream {received.question.number} from its records: {again.error or 'other text'}")
    seen = f"{records['num_subjects']} streams and {records['messages']} messages in JetStream, {len(lost)} not told from them"
    return judged(streams, [(True, what) for what in lost[:3]], seen)


@row("leader of JetStream killed", short=True)
async def leader_killed(bench):
    cluster = bench.cluster
    leader = (cluster.records() or {}).get("leader") or cluster.meta_leader()

    async def back(streams):
        await streams.until(0.9)
        await cluster.call("start", leader)

    return await nats_fault(bench, lambda: cluster.kill(leader), back)


@row("NATS wholly down", short=True)
async def nats_down(bench):
    cluster = bench.cluster

    async def back(_):
        await asyncio.sleep(bench.outage_s)
        await cluster.call("start", *cluster.nats)

    seen, problems = await nats_fault(bench, lambda: cluster.kill(*cluster.nats), back)
    return f"for {bench.outage_s:.0f} s; {seen}", problems


@row("files of all NATS servers lost")
async def nats_wiped(bench):
    cluster = bench.cluster

    async def wipe():
        await cluster.kill(*cluster.nats)
        for name in cluster.nats:
            shutil.rmtree(cluster.folder / name)

    async def back(_):
        await cluster.call("start", *cluster.nats)

    return await nats_fault(bench, wipe, back, is_wiped=True)


@row("clocks of a gateway and an engine an hour off")
async def clock_skew(bench):
    cluster = bench.cluster
    for name, offset in (("gateway-1", "+3600"), ("engine-1", "-3600")):
        await cluster.call("stop", name)
        await cluster.call("start", name, PREFIX=f"env LD_PRELOAD={FAKETIME} FAKETIME={offset} FAKETIME_DONT_FAKE_MONOTONIC=1")
    await until("all instances know each other", cluster.all_are_there)
    streams = await bench.streams().open_openai([cluster.url("gateway-1"), cluster.url("gateway-2")]).finish()
    seen = judged(streams, [(not cluster.all_are_there(), "an instance is not `alive`")])
    for name in ("gateway-1", "engine-1"):
        await cluster.call("stop", name)
    return seen


async def always_open(is_over, bench, questions, opened):
    """One stream after another until `is_over`; all that were opened are added to `opened`."""
    for question in itertools.cycle(questions):
        if is_over.is_set():
            return
        streams = Streams([question], bench.expected)
        opened.append(streams)
        if question.tokens == SHORT_TOKENS:
            streams.open_openai([bench.cluster.url("nginx")])
        else:
            streams.open_resuming([bench.cluster.url("nginx")])
        await streams.finish()


@row("engines and gateways restarted one after another behind nginx", short=True)
async def rolling_restart(bench):
    cluster, expected = bench.cluster, bench.expected
    is_over, resuming, asked = asyncio.Event(), [], []
    # As many resumable streams as ever are open all the time; and new requests, each over before a gateway must end.
    slots = [asyncio.create_task(always_open(is_over, bench, [question], resuming)) for question in bench.questions]
    short = [dataclasses.replace(question, tokens=SHORT_TOKENS) for question in bench.questions]
    slots += [asyncio.create_task(always_open(is_over, bench, short[n:], asked)) for n in range(ASKERS)]
    for name in cluster.engines + cluster.gateways:
        before = len(resuming) + len(asked)
        await cluster.call("stop", name)
        await cluster.call("start", name)
        # The new process is used before the next one ends.
        await until("the gateways see all engines", cluster.all_are_there)
        while len(resuming) + len(asked) < before + ASKERS:
            await asyncio.sleep(0.05)
    is_over.set()
    await asyncio.gather(*slots)
    streams = bench.streams(slice(0))
    streams.received = [r for opened in resuming for r in opened.received]
    new = [r for opened in asked for r in opened.received]
    failed = [r.error for r in new if r.error]
    of = {r.number: text for r, text in expected.items()}
    wrong = [r for r in new if not r.error and not of[r.question.number].startswith(r.text)]
    resumed = sum(r.connections > 1 for r in streams.received)
    more = [(True, f"new request: {error}") for error in failed[:3]] + [(bool(wrong), "new requests: other text")]
    more.append((resumed == 0, "no stream was resumed"))
    seen = f"{resumed} streams resumed; new requests: {len(failed)} failed, {len(wrong)} wrong of {len(new)}"
    return judged(streams, more, seen)
