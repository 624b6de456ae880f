"""What the rows of the table share: the cluster, the questions, and how what clients saw is judged."""

import asyncio
import dataclasses

from processes import Cluster
from streams import Received, ResumingReader, Streams, http_client

ROWS = []
RESUMABLE = {"x-stream-resumable": "1"}


def row(name, short=False):
    """Registers a fault; `short`: part of the short form. A row returns what it saw, and what of that must not be."""

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

    @property
    def gateways(self):
        """Addresses of the first two gateways."""
        return [self.cluster.url(gateway) for gateway in self.cluster.gateways[:2]]

    async def told_by(self, url, received, once=1):
        """What a gateway tells of streams from their begin, now; some at one time."""
        again = [Received(r.question, id=r.id) for r in received]
        turns = asyncio.Semaphore(once)

        async def read(client, one):
            async with turns:
                # What hinders three hinders all.
                if sum(bool(one.error) for one in again) < 3:
                    await ResumingReader(client, [url], one).run()
                else:
                    one.error = "not asked for"

        async with http_client() as client:
            await asyncio.gather(*(read(client, one) for one in again))
        return again


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
