"""Measurements of a cluster of real processes on one machine; docs/cluster.md has results, and what they mean.

    python measurements.py MILLRACE FOLDER --nats PROGRAM [--fake FAKE-ENGINE] [--rows hop,idle]

All processes, NATS servers and clients share the processors of this machine: times are upper bounds, ratios are of one run.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from processes import Alone, Cluster, get_json, until
from streams import Question, Streams, httpx

ROWS = {}
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def row(function):
    ROWS[function.__name__] = function
    return function


def cpu_s(pid):
    """Processor time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def resident_mib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def summary(values, unit="ms", scale=1e3):
    shown = {f"p{p}": percentile(values, p / 100) * scale for p in (50, 95, 99)}
    return ", ".join(f"{name} {value:.2f} {unit}" for name, value in shown.items()) + f" of {len(values)}"


@contextlib.asynccontextmanager
async def cluster_of(asked, engines=3, gateways=2, model="", **settings):
    cluster = Cluster(asked.millrace, asked.nats, asked.folder / "state", engines, gateways, settings, model)
    try:
        await cluster.whole()
        yield cluster
    finally:
        cluster.end()


async def load(asked, url, clients, tokens, prompt=32, requests=None):
    """`millrace bench serve` in a closed loop."""
    command = [asked.millrace, "bench", "serve", "--url", url, "--clients", str(clients), "--prompt", str(prompt)]
    command += ["--gen", str(tokens), "--ignore-eos", "--json", *(["--requests", str(requests)] if requests else [])]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


@row
async def hop(asked):
    """An answer of one token by a gateway and an engine, and by one process: two hops more"""

    async def ask(client, url, number):
        body = {"prompt": f"Say {number}", "max_tokens": 1, "ignore_eos": True}
        begin = time.perf_counter()
        reply = await client.post(f"{url}/v1/completions", json=body)
        assert reply.status_code == 200, reply.text
        return time.perf_counter() - begin

    alone = Alone(asked.millrace)
    async with cluster_of(asked, engines=1, gateways=1) as cluster, httpx.AsyncClient(trust_env=False) as client:
        await alone.ready()
        times = {alone.url: [], cluster.url("gateway-1"): []}
        for number in range(1000):
            for url, seconds in times.items():
                seconds.append(await ask(client, url, number))
        alone.stop()
        one, two = times.values()
        print(f"one process: {summary(one)}")
        print(f"gateway and engine: {summary(two)}")
        for part in (0.5, 0.95, 0.99):
            print(f"a hop, half of the difference of p{part * 100:.0f}: {(percentile(two, part) - percentile(one, part)) / 2 * 1e3:.2f} ms")


@row
async def gateway_cpu(asked):
    """Processor time of a gateway for each token, at 64 clients, and what NATS carries for it"""
    async with cluster_of(asked, engines=1, gateways=1) as cluster, fakes_of(asked, cluster, 1):
        await load(asked, cluster.url("gateway-1"), 64, 64)
        begin, before = cpu_s(cluster.pid("gateway-1")), traffic(cluster)
        nats = {name: cpu_s(cluster.pid(name)) for name in cluster.nats}
        result = await load(asked, cluster.url("gateway-1"), 64, 256, requests=256)
        used, carried = cpu_s(cluster.pid("gateway-1")) - begin, traffic(cluster)
        tokens = 256 * 256
        print(json.dumps(result))
        print(f"{used * 1e6 / tokens:.1f} us of the gateway for each of {tokens} tokens")
        servers = sum(cpu_s(cluster.pid(name)) - at for name, at in nats.items())
        print(f"{servers * 1e6 / tokens:.1f} us of the NATS servers for each")
        for name, value in carried.items():
            print(f"{name}: {(value - before[name]) / tokens:.3f} for each token")


def traffic(cluster):
    """What the NATS servers have received from clients and each other."""
    pages = [get_json(f"{cluster.url(name)}/varz") for name in cluster.nats]
    return {name: sum(page[name] for page in pages) for name in ("in_msgs", "in_bytes", "out_msgs", "out_bytes")}


@contextlib.asynccontextmanager
async def fakes_of(asked, cluster, count, step_ms=20, sequences=64):
    """Fake engines in place of the real ones."""
    if not asked.fake:
        raise SystemExit("--fake is missing: cargo build --release -p cluster --example fake_engine")
    programs = []
    try:
        for n in range(count):
            server = f"nats://127.0.0.1:{cluster.variables['NATS_PORT']}"
            command = [asked.fake, server, cluster.folder / "engine.nkey", str(step_ms), str(sequences)]
            programs.append(subprocess.Popen(command))
        address = cluster.url("gateway-1")

        def engines():
            instances = get_json(f"{address}/v1/cluster")["instances"]
            return [i for i in instances if i["state"] == "alive" and i["role"] == "engine" and i["models"]]

        await until("fake engines", lambda: len(engines()) == count + len(cluster.engines))
        await cluster.call("stop", *cluster.engines)
        await until("only fake engines", lambda: len(engines()) == count)
        yield programs
    finally:
        for program in programs:
            program.send_signal(signal.SIGKILL)
            program.wait()


@row
async def scaling(asked):
    """Tokens per second through one gateway by engines without weights: 64 sequences each, steps of 20 ms"""
    for count in (1, 2, 4, 8):
        async with cluster_of(asked, engines=1, gateways=1) as cluster, fakes_of(asked, cluster, count) as programs:
            clients = 64 * count
            await load(asked, cluster.url("gateway-1"), clients, 32)
            pids = [cluster.pid("gateway-1"), *(cluster.pid(name) for name in cluster.nats), *(p.pid for p in programs)]
            before, begin = [cpu_s(pid) for pid in pids], time.monotonic()
            result = await load(asked, cluster.url("gateway-1"), clients, 200, requests=clients * 2)
            wall = time.monotonic() - begin
            used = [(cpu_s(pid) - at) / wall for pid, at in zip(pids, before)]
            print(f"{count} engines, {clients} clients: {json.dumps(result)}")
            print(f"  processors in use: gateway {used[0]:.2f}, NATS {sum(used[1:4]):.2f}, engines {sum(used[4:]):.2f}")


@row
async def throughput(asked):
    """One engine behind one gateway beside one process, on a model of 1B whose arithmetic dominates"""
    model = asked.folder / "1b.gguf"
    if not model.exists():
        synth = [asked.millrace, "synth", model, "--preset", "llama-1b", "--quant", "Q4_K_M"]
        subprocess.run(synth, check=True, stdout=subprocess.DEVNULL)
    settings = {"MILLRACE_MODEL_DETERMINISTIC": "false", "MILLRACE_MODEL_CONTEXT": "2048"}
    for number in range(3):
        alone = Alone(asked.millrace, settings, str(model))
        await alone.ready()
        one = await load(asked, alone.url, 16, 48, requests=48)
        alone.stop()
        async with cluster_of(asked, engines=1, gateways=1, model=str(model), **settings) as cluster:
            two = await load(asked, cluster.url("gateway-1"), 16, 48, requests=48)
        print(f"round {number}: one process {json.dumps(one)}\n  gateway and engine {json.dumps(two)}")


async def expected_of(asked, questions):
    alone = Alone(asked.millrace)
    await alone.ready()
    streams = await Streams(questions, dict.fromkeys(questions, "")).open_openai([alone.url]).finish()
    alone.stop()
    return {r.question: r.text for r in streams.received}


@row
async def engine_death(asked):
    """From the kill of an engine to the next token of its streams, at about 200 tokens"""
    questions = [Question(number, 1600) for number in range(32)]
    expected = await expected_of(asked, questions)
    pauses, prefill = [], []
    async with cluster_of(asked) as cluster:
        for _ in range(5):
            await cluster.whole()
            moved = cluster.metrics("millrace_relay_resubmitted_total")
            streams = Streams(questions, expected).open_openai([cluster.front])
            await streams.until(0.125)
            killed = cluster.busiest_engine()
            at = time.monotonic()
            cluster.signal(killed, signal.SIGKILL)
            await streams.finish()
            await cluster.call("stop", killed)
            moved = int(cluster.metrics("millrace_relay_resubmitted_total") - moved)
            assert not streams.broken() and not streams.wrong()
            # Those that were moved are those that waited longest.
            waits = sorted(next((t for t in r.times if t > at), at) - at for r in streams.received)
            pauses += waits[-moved:] if moved else []
            prefill.append(moved)
    assert pauses, "no stream was on an engine that was killed"
    print(f"next token after the kill: {summary(pauses)}; streams of the engine, by kill: {prefill}")


@row
async def gateway_death(asked):
    """From the kill of a gateway to the next token at the other one, at about 500 tokens"""
    questions = [Question(number, 700) for number in range(24)]
    expected = await expected_of(asked, questions)
    pauses = []
    async with cluster_of(asked) as cluster:
        for _ in range(5):
            await cluster.whole()
            urls = [cluster.url("gateway-1"), cluster.url("gateway-2")]
            streams = Streams(questions, expected).open_resuming(urls)
            await streams.until(0.7)
            at = time.monotonic()
            cluster.signal("gateway-1", signal.SIGKILL)
            await streams.finish()
            await cluster.call("stop", "gateway-1")
            assert not streams.broken() and not streams.wrong()
            resumed = [r for r in streams.received if len(r.starts) > 1 and r.starts[-1] < len(r.times)]
            pauses += [r.times[r.starts[-1]] - at for r in resumed]
    print(f"next token after the kill: {summary(pauses)}")


@row
async def idle(asked):
    """10,000 streams over two gateways, each with a reader that has all that it may have"""
    count = 10_000
    settings = {
        "MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS": "8",
        "MILLRACE_BACKPRESSURE_ACK_TIMEOUT_MS": "0",
        "MILLRACE_STREAMS_OPEN_MAX": "20000",
        "MILLRACE_SERVER_OPEN_REQUESTS_MAX": "20000",
        "MILLRACE_SERVER_CONNECTIONS_MAX": "20000",
        "MILLRACE_SERVER_CONNECTIONS_PER_IP_MAX": "20000",
        "MILLRACE_ENGINE_SEQUENCES_MAX": "6000",
        "MILLRACE_ENGINE_INBOX_MAX": "6000",
        "MILLRACE_ENGINE_STEP_TOKENS": "6000",
        "MILLRACE_STREAMS_KEEP_ALIVE_MS": "10000",
    }
    async with cluster_of(asked, engines=2, **settings) as cluster:
        at = [f"{name}: {resident_mib(cluster.pid(name)):.0f} MiB" for name in cluster.gateways + cluster.engines + cluster.nats]
        print("before:", ", ".join(at))
        readers = [await IdleReader.open(cluster.url(cluster.gateways[n % 2]), n) for n in range(count)]
        print(f"{sum(r.is_open for r in readers)} of {count} streams are open")
        reads = [asyncio.create_task(reader.drain()) for reader in readers]
        await asyncio.sleep(60)
        parked = sum(reader.tokens >= 8 and reader.is_open for reader in readers)
        at = [f"{name}: {resident_mib(cluster.pid(name)):.0f} MiB" for name in cluster.gateways + cluster.engines + cluster.nats]
        print(f"{parked} have all their tokens; after a minute:", ", ".join(at))
        used = [cpu_s(cluster.pid(name)) for name in cluster.gateways]
        await asyncio.sleep(30)
        used = [(cpu_s(cluster.pid(name)) - before) / 30 for name, before in zip(cluster.gateways, used)]
        print("processors of the gateways while they wait:", ", ".join(f"{part:.3f}" for part in used))
        print("records:", cluster.records())
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


class IdleReader:
    """A socket without a library: ten thousand of them."""

    @classmethod
    async def open(cls, url, number):
        self = cls()
        host, port = url.removeprefix("http://").split(":")
        self.tokens, self.is_open = 0, True
        self.reader, self.writer = await asyncio.open_connection(host, int(port), limit=1 << 14)
        body = json.dumps({**Question(number, 200).body()})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        fields = f"x-stream-resumable: 1\r\nx-stream-acks: explicit\r\ncontent-length: {len(body)}\r\n\r\n"
        self.writer.write((head + fields + body).encode())
        # The head of the response: no more are sent than the gateway takes.
        line = await self.reader.readline()
        self.is_open = b" 200 " in line
        return self

    async def drain(self):
        while line := await self.reader.readline():
            if line.startswith(b"id: "):
                self.tokens = int(line.rpartition(b":")[2].split(b".")[0])
        self.is_open = False


async def run(asked):
    for name in asked.rows.split(",") if asked.rows else ROWS:
        print(f"\n== {name}: {ROWS[name].__doc__}", flush=True)
        await ROWS[name](asked)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millrace")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--nats", default=shutil.which("nats-server"))
    parser.add_argument("--fake", help="the program of crates/cluster/examples/fake_engine.rs")
    parser.add_argument("--rows", default="", help="names, of: " + ", ".join(ROWS))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(run(asked))


if __name__ == "__main__":
    main()
