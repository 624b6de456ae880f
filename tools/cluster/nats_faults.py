"""Faults of the NATS servers while durable streams run; afterwards the records alone must tell each of them."""

import asyncio
import shutil

from processes import get_json, until
from rows import RESUMABLE, judged, row

# Streams that are read again at one time: more would measure the claims beside each other.
READ_AGAIN = 8


async def all_stored(cluster, gateway, received):
    """Waits until JetStream has the records of all streams, those of these streams too."""

    def is_stored():
        reports = [get_json(f"{cluster.url(name)}/v1/cluster")["records"] for name in cluster.gateways]
        if not all(r["stored"] and r["missing"] + r["behind_bytes"] == 0 for r in reports):
            return False
        # A gateway may not know yet that JetStream has lost them.
        stored = (cluster.records() or {}).get("num_subjects", 0)
        if stored < sum(r["replicated"] for r in reports):
            return False
        return all(get_json(f"{cluster.url(gateway)}/v1/streams/{r.id}")["replicated"] for r in received)

    await until("all records are stored", is_stored)


async def nats_fault(bench, fault, back):
    cluster = bench.cluster
    first, second = bench.gateways
    streams = bench.streams().open_openai([first], headers=RESUMABLE)
    await streams.until(0.3)
    await fault()
    await back(streams)
    await streams.finish()
    seen, problems = judged(streams)
    await all_stored(cluster, "gateway-1", [r for r in streams.received if r.id])
    records = cluster.records() or {}
    # The owner dies: what another gateway tells now is from the records.
    await cluster.kill("gateway-1")
    again = await bench.told_by(second, streams.received, READ_AGAIN)
    lost = [r for r in again if r.text != bench.expected[r.question]]
    problems += [f"stream {r.question.number} from its records: {r.error or 'other text'}" for r in lost[:3]]
    stored = f"{records.get('num_subjects')} streams and {records.get('messages')} messages in JetStream"
    return f"{seen}; {stored}, {len(lost)} not told from them", problems


@row("leader of JetStream killed")
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

    return await nats_fault(bench, wipe, back)
