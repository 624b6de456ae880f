"""Faults of engines and gateways that stay connected to NATS, or die; and wrong clocks."""

import asyncio
import signal

from processes import until
from rows import counted, judged, row

# How the `openai` package tells that a connection ended.
CONNECTION_ERRORS = {"APIConnectionError", "RemoteProtocolError", "ReadError"}
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


@row("engine killed, then another one", short=True)
async def engine_killed(bench):
    cluster = bench.cluster
    moved = counted(cluster, "millrace_relay_resubmitted_total")
    streams = bench.streams().open_openai([cluster.front])
    await streams.until(0.2)
    killed = await cluster.busiest_engine(streams)
    await cluster.kill(killed)
    await streams.until(0.4)
    await cluster.call("start", killed)
    await streams.until(0.6)
    await cluster.kill(await cluster.busiest_engine(streams))
    await streams.finish()
    return judged(streams, [(moved() == 0, "no request was on the engines")], f"{moved():.0f} requests moved")


@row("engine stopped (SIGSTOP), then continued", short=True)
async def engine_stopped(bench):
    cluster = bench.cluster
    names = ["millrace_relay_resubmitted_total", "millrace_relay_stale_total", "millrace_relay_diverged_total"]
    moved, stale, diverged = (counted(cluster, name) for name in names)
    streams = bench.streams().open_openai([cluster.front])
    await streams.until(0.2)
    stopped = await cluster.busiest_engine(streams)
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
    first, second = bench.gateways
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

    seen = await gateway_fault(bench, lambda: cluster.kill("gateway-1"), restart)
    return judged_gateway(*seen)


@row("gateway stopped (SIGSTOP), its streams resumed elsewhere, then continued")
async def gateway_stopped(bench):
    cluster = bench.cluster
    first, second = bench.gateways
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
    resuming.tasks = [asyncio.create_task(reader.run()) for reader in cut]
    await resuming.until(0.6)
    cluster.signal("gateway-1", signal.SIGCONT)
    await resuming.finish()
    different = await told_differently(bench, resuming.received)
    more = [(not cut, "no stream was cut"), *((True, what) for what in different[:3])]
    return judged(resuming, more, f"{len(cut)} streams cut, {len(different)} told differently by the two gateways")


async def told_differently(bench, received):
    """Streams that one of the two gateways tells differently, both asked for the whole."""
    different = []
    for url in bench.gateways:
        for again in await bench.told_by(url, received):
            is_honest = again.error and "lost" in again.error
            if again.text != bench.expected[again.question] and not is_honest:
                different.append(f"stream {again.question.number} at {url}: {again.error or 'other text'}")
    return different


@row("clocks of a gateway and an engine an hour off")
async def clock_skew(bench):
    cluster = bench.cluster
    for name, offset in (("gateway-1", "+3600"), ("engine-1", "-3600")):
        await cluster.call("stop", name)
        await cluster.call("start", name, PREFIX=f"env LD_PRELOAD={FAKETIME} FAKETIME={offset} FAKETIME_DONT_FAKE_MONOTONIC=1")
    await until("all instances know each other", cluster.all_are_there)
    streams = await bench.streams().open_openai(bench.gateways).finish()
    seen = judged(streams, [(not cluster.all_are_there(), "an instance is not `alive`")])
    for name in ("gateway-1", "engine-1"):
        await cluster.call("stop", name)
    return seen
