"""Instances that NATS does not reach, or not as sent: a proxy stands between them and the NATS servers."""

import contextlib
import time

from faults import told_differently
from processes import until
from proxy import Disturbance, NatsProxy
from rows import counted, judged, row
from streams import Received, Streams


@contextlib.asynccontextmanager
async def behind_proxy(cluster, *names, disturbance=None):
    """Processes that reach NATS through a proxy only. Afterwards they are stopped."""
    async with NatsProxy(cluster.nats_ports, disturbance) as proxy:
        await cluster.call("stop", *names)
        await cluster.call("start", *names, SERVERS=proxy.servers)
        await until("all instances know each other", cluster.all_are_there)
        try:
            yield proxy
        finally:
            proxy.pass_on()
            await cluster.call("stop", *names)


@row("engine cut off from NATS (no bytes pass), then back")
async def engine_cut_off(bench):
    cluster = bench.cluster
    async with behind_proxy(cluster, "engine-1") as proxy:
        names = ["millrace_relay_resubmitted_total", "millrace_relay_stale_total", "millrace_relay_diverged_total"]
        moved, stale, diverged = (counted(cluster, name) for name in names)
        streams = bench.streams().open_openai([cluster.front])
        await streams.until(0.2)
        proxy.stall()
        # The engine computes on: its tokens arrive late.
        await until("requests are moved", lambda: moved() > 0)
        proxy.pass_on()
        await streams.finish()
        more = [(diverged() > 0, "attempts with different tokens")]
        return judged(streams, more, f"{moved():.0f} requests moved, {stale():.0f} late messages ignored")


@row("gateway cut off from NATS (no bytes pass), its streams resumed elsewhere, then back", short=True)
async def gateway_cut_off(bench):
    cluster = bench.cluster
    first, second = bench.gateways
    async with behind_proxy(cluster, "gateway-1") as proxy:
        claimed, fenced = (counted(cluster, f"millrace_streams_{name}_total") for name in ("claimed", "fenced"))
        # These readers stay at their gateway, and come back to it.
        staying = bench.streams(slice(0, None, 2)).open_resuming([first])
        await staying.until(0.3)
        proxy.stall()
        leaving = resumed_at(bench, second, staying)
        await leaving.until(0.6)
        passed_on = time.monotonic()
        proxy.pass_on()
        await leaving.finish()
        await staying.finish()
        different = await told_differently(bench, leaving.received)
        late = sum(told_after(old, passed_on) for old in leaving.originals)
        more = [(not leaving.received, "no stream was cut"), (claimed() == 0, "no stream was claimed")]
        more += [(True, what) for what in different[:3]]
        more += [(True, f"at the cut-off gateway: {what}") for what in judged(staying)[1]]
        more.append((late > 0, f"{late} events by the earlier owner after the claim"))
        seen = f"{claimed():.0f} streams claimed by the second gateway, {fenced():.0f} fenced, {len(different)} told differently"
        return judged(leaving, more, f"{seen}; {late} events by the earlier owner when it was back")


def resumed_at(bench, url, streams):
    """A second reader for each open stream, at another gateway, from where the first one is."""
    cut = [reader for reader in streams.readers if not reader.is_done and reader.cursor]
    resumed = Streams([], bench.expected)
    resumed.originals = [reader.received for reader in cut]
    resumed.received = [Received(r.question, r.text, id=r.id) for r in resumed.originals]
    resumed.open_resuming([url], [reader.cursor for reader in cut])
    return resumed


def told_after(old, passed_on):
    """Events that the earlier owner told over the connection that it had, after NATS reached it again: the second gateway
    had told further by then. Before, the second gateway may have asked the first one, and told what that one had."""
    end = old.starts[1] if len(old.starts) > 1 else len(old.times)
    return sum(at > passed_on for at in old.times[:end])


@row("messages lost, doubled, late, out of order")
async def disturbed(bench):
    disturbance = Disturbance(seed=7)
    async with behind_proxy(bench.cluster, "gateway-1", "engine-1", disturbance=disturbance):
        streams = await bench.streams().open_openai(bench.gateways).finish()
        return judged(streams, [(disturbance.lost == 0, "no message was disturbed")], str(disturbance))
