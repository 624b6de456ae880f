"""Measurements of a cluster of real processes on one machine; measurements/cluster.md has results.

    python measurements.py MILLRACE FOLDER --nats PROGRAM [--examples FOLDER] [--rows hop,idle] [--small]

All processes, NATS servers and clients share the processors of this machine: times are upper bounds, ratios are of one run.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time

from conversations import hold_all
from processes import Alone, Cluster, get_json, until
from streams import Question, Streams, httpx

ROWS = {}
# Tokens that were computed before a fault come within this time after it.
ON_THEIR_WAY_S = 0.25
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
    """A message from one process to another over NATS, and what two of them add to an answer of one token"""
    async with cluster_of(asked, engines=1, gateways=1) as cluster:
        server = f"nats://127.0.0.1:{cluster.nats_ports[0]}"
        keys = [cluster.folder / f"{role}.nkey" for role in ("gateway", "engine")]
        command = [asked.examples / "hop", server, *keys, "500" if asked.small else "10000"]
        print("a hop:", (await asyncio.to_thread(subprocess.check_output, command, text=True)).strip())
        await answers_of_one_token(asked, cluster)


async def answers_of_one_token(asked, cluster):
    """By a gateway and an engine, and by one process, in turn."""

    async def ask(client, url, number):
        body = {"prompt": f"Say {number}", "max_tokens": 1, "ignore_eos": True}
        begin = time.perf_counter()
        reply = await client.post(f"{url}/v1/completions", json=body)
        assert reply.status_code == 200, reply.text
        return time.perf_counter() - begin

    alone = Alone(asked.millrace)
    async with httpx.AsyncClient(trust_env=False) as client:
        await alone.ready()
        times = {alone.url: [], cluster.url("gateway-1"): []}
        for number in range(100 if asked.small else 2000):
            for url, seconds in times.items():
                seconds.append(await ask(client, url, number))
        alone.stop()
    one, two = times.values()
    print(f"answers of one process: {summary(one)}")
    print(f"answers of gateway and engine: {summary(two)}")
    added = [percentile(two, part) - percentile(one, part) for part in (0.5, 0.95, 0.99)]
    print("more at p50, p95, p99:", ", ".join(f"{seconds * 1e3:.2f} ms" for seconds in added))


@row
async def gateway_cpu(asked):
    """Processor time of a gateway for each token, at 64 clients, and what NATS carries for it"""
    async with cluster_of(asked, engines=1, gateways=1) as cluster, fakes_of(asked, cluster, 1):
        await load(asked, cluster.url("gateway-1"), 64, 64)
        begin, before = cpu_s(cluster.pid("gateway-1")), traffic(cluster)
        nats = {name: cpu_s(cluster.pid(name)) for name in cluster.nats}
        requests = 64 if asked.small else 512
        result = await load(asked, cluster.url("gateway-1"), 64, 256, requests=requests)
        used, carried = cpu_s(cluster.pid("gateway-1")) - begin, traffic(cluster)
        # `bench serve` has as many requests before the measured ones as clients.
        tokens = 256 * (requests + 64)
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
    programs = []
    try:
        for n in range(count):
            server = f"nats://127.0.0.1:{cluster.variables['NATS_PORT']}"
            command = [asked.examples / "fake_engine", server, cluster.folder / "engine.nkey", str(step_ms), str(sequences)]
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
    for count in (1, 2) if asked.small else (1, 2, 4, 8):
        async with cluster_of(asked, engines=1, gateways=1) as cluster, fakes_of(asked, cluster, count) as programs:
            clients = 64 * count
            await load(asked, cluster.url("gateway-1"), clients, 32)
            pids = [cluster.pid("gateway-1"), *(cluster.pid(name) for name in cluster.nats), *(p.pid for p in programs)]
            before, begin = [cpu_s(pid) for pid in pids], time.monotonic()
            result = await load(asked, cluster.url("gateway-1"), clients, 200, requests=clients * 6)
            wall = time.monotonic() - begin
            used = [(cpu_s(pid) - at) / wall for pid, at in zip(pids, before)]
            print(f"{count} engines, {clients} clients: {json.dumps(result)}")
            print(f"  processors in use: gateway {used[0]:.2f}, NATS {sum(used[1:4]):.2f}, engines {sum(used[4:]):.2f}")


@row
async def placement(asked):
    """Conversations over two gateways and three engines with the built-in model, by each policy: cached prompts, first tokens"""
    for number in range(1 if asked.small else 3):
        for policy in ("round_robin", "least_loaded", "predicted"):
            settings = {"MILLRACE_CLUSTER_PLACEMENT": policy, "MILLRACE_MODEL_THREADS": "1"}
            async with cluster_of(asked, **settings) as cluster:
                begin = time.monotonic()
                turns = await hold_all([cluster.url(name) for name in cluster.gateways], 8, 8 if asked.small else 100)
                wall = time.monotonic() - begin
            hits = sum(turn.cached_tokens for turn in turns) / sum(turn.prompt_tokens for turn in turns)
            first = summary([turn.first_token_s for turn in turns])
            print(f"round {number}, {policy}: {hits:.1%} of prompts cached, first token {first} turns in {wall:.0f} s", flush=True)


def synthesized(asked, preset, quant):
    """The path of a model of random weights; empty for the built-in model, if the figures are of no use."""
    model = asked.folder / f"{preset}.gguf"
    if asked.small:
        return ""
    if not model.exists():
        synth = [asked.millrace, "synth", model, "--preset", preset, "--quant", quant]
        subprocess.run(synth, check=True, stdout=subprocess.DEVNULL)
    return str(model)


@row
async def throughput(asked):
    """One engine behind one gateway beside one process, on a model of 1B whose arithmetic dominates"""
    model = synthesized(asked, "llama-1b", "Q4_K_M")
    settings = {"MILLRACE_MODEL_DETERMINISTIC": "false", "MILLRACE_MODEL_CONTEXT": "2048"}
    ratios = []
    for number in range(2 if asked.small else 5):
        # In turn, so that a slow minute of the machine is not always the same one's.
        one, two = None, None
        for turn in (number, number + 1):
            if turn % 2:
                async with cluster_of(asked, engines=1, gateways=1, model=model, **settings) as cluster:
                    two = await load(asked, cluster.url("gateway-1"), 16, 48, requests=64)
            else:
                alone = Alone(asked.millrace, settings, model)
                await alone.ready()
                one = await load(asked, alone.url, 16, 48, requests=64)
                alone.stop()
        ratios.append(two["tokens_per_s"] / one["tokens_per_s"])
        print(f"round {number}: {two['tokens_per_s']:.1f} of {one['tokens_per_s']:.1f} tokens/s: {ratios[-1]:.3f}", flush=True)
    print(f"gateway and engine have {statistics.median(ratios):.3f} of the throughput of one process (median of {len(ratios)} rounds)")


async def expected_of(asked, questions):
    alone = Alone(asked.millrace)
    await alone.ready()
    streams = await Streams(questions, dict.fromkeys(questions, "")).open_openai([alone.url]).finish()
    alone.stop()
    return {r.question: r.text for r in streams.received}


@row
async def engine_death(asked):
    """From the kill of an engine to the next token of its streams, at about 200 tokens"""
    questions = [Question(number, 1600) for number in range(8 if asked.small else 32)]
    expected = await expected_of(asked, questions)
    pauses, prefill = [], []
    async with cluster_of(asked) as cluster:
        for _ in range(1 if asked.small else 5):
            await cluster.whole()
            moved = cluster.metrics("millrace_relay_resubmitted_total")
            streams = Streams(questions, expected).open_openai([cluster.front])
            await streams.until(0.125)
            killed = await cluster.busiest_engine(streams)
            at = time.monotonic()
            cluster.signal(killed, signal.SIGKILL)
            await streams.finish()
            await cluster.call("stop", killed)
            moved = int(cluster.metrics("millrace_relay_resubmitted_total") - moved)
            assert not streams.broken() and not streams.wrong()
            # Those that were moved are those that waited longest. Later gaps are of another cause.
            waits = sorted(end_of_first_gap(r.times, at) - at for r in streams.received)
            pauses += waits[-moved:] if moved else []
            prefill.append(moved)
    assert pauses, "no stream was on an engine that was killed"
    print(f"next token after the kill: {summary(pauses)}; streams of the engine, by kill: {prefill}")


def end_of_first_gap(times, at):
    """When the first token came that was computed after the fault at `at`: tokens on their way come without a gap before it."""
    after = [at] + [time for time in times if time > at]
    gaps = [(late - early, late) for early, late in zip(after, after[1:]) if early - at < ON_THEIR_WAY_S]
    return max(gaps)[1] if gaps else at


@row
async def gateway_death(asked):
    """From the kill of a gateway to the next token at the other one, at about 500 tokens"""
    questions = [Question(number, 700) for number in range(8 if asked.small else 24)]
    expected = await expected_of(asked, questions)
    pauses = []
    async with cluster_of(asked) as cluster:
        for _ in range(1 if asked.small else 5):
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
    """10,000 streams over two gateways, each with a reader that has all that it may have; engines without weights"""
    count = 400 if asked.small else 10_000
    bound = str(2 * count)
    settings = {
        "MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS": str(IdleReader.CREDIT),
        "MILLRACE_BACKPRESSURE_ACK_TIMEOUT_MS": "0",
        "MILLRACE_STREAMS_KEEP_ALIVE_MS": "10000",
        # Memory must not depend on what is beyond the streams that are open.
        "MILLRACE_STREAMS_RETENTION_S": "60",
    }
    names = ["STREAMS_OPEN_MAX", "SERVER_OPEN_REQUESTS_MAX", "SERVER_CONNECTIONS_MAX", "SERVER_CONNECTIONS_PER_IP_MAX"]
    names += ["ADAPTIVE_LIMITS_MAX_STREAMS", "QUEUE_MAX_DEPTH", "ENGINE_SEQUENCES_MAX", "ENGINE_STEP_TOKENS"]
    settings |= {f"MILLRACE_{name}": bound for name in names}
    async with cluster_of(asked, engines=2, **settings) as cluster, fakes_of(asked, cluster, 2, sequences=count) as programs:
        pids = {name: cluster.pid(name) for name in cluster.gateways + cluster.nats}
        pids |= {f"engine {n + 1}": program.pid for n, program in enumerate(programs)}
        print("before:", memory_of(pids), flush=True)
        readers = [await IdleReader.open(cluster.url(cluster.gateways[n % 2]), n) for n in range(count)]
        print(f"{sum(r.is_open for r in readers)} of {count} streams are open; refused: {sorted({r.head for r in readers if not r.is_open})}")
        reads = [asyncio.create_task(reader.drain()) for reader in readers]
        await until("readers with all their tokens", lambda: all(r.tokens >= r.CREDIT or not r.is_open for r in readers))
        await asyncio.sleep(5 if asked.small else 60)
        waiting = sum(reader.is_open and reader.tokens >= reader.CREDIT for reader in readers)
        print(f"{waiting} wait with {IdleReader.CREDIT} tokens; some time later:", memory_of(pids), flush=True)
        used = [cpu_s(pids[name]) for name in cluster.gateways]
        await asyncio.sleep(5 if asked.small else 30)
        used = [(cpu_s(pids[name]) - before) / (5 if asked.small else 30) for name, before in zip(cluster.gateways, used)]
        print("processors of the gateways while they wait:", ", ".join(f"{part:.3f}" for part in used))
        print("records:", cluster.records())
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


def memory_of(pids):
    return ", ".join(f"{name} {resident_mib(pid):.0f} MiB" for name, pid in pids.items())


class IdleReader:
    """A socket without a library: ten thousand of them."""

    # Tokens that a stream may be ahead of its reader, who acknowledges none.
    CREDIT = 8

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
        self.head = (await self.reader.readline()).decode().strip()
        self.is_open = " 200 " in self.head
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
    parser.add_argument("--examples", type=pathlib.Path, help="the folder with `fake_engine` and `hop` of crates/cluster/examples")
    parser.add_argument("--small", action="store_true", help="whether each row runs; the figures are of no use")
    parser.add_argument("--rows", default="", help="names, of: " + ", ".join(ROWS))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    # Ten thousand sockets, here and in the processes that are started.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    asyncio.run(run(asked))


if __name__ == "__main__":
    main()
