"""The cluster of deploy/cluster.sh on free ports, and what can happen to its processes."""

import asyncio
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "cluster.sh"
# Streams are read again after their ends, engines take all requests at once, and answers must not depend on their batch.
SETTINGS = {
    "MILLRACE_MODEL_DETERMINISTIC": "true",
    "MILLRACE_ADAPTIVE_LIMITS_ENABLED": "false",
    # 200 streams run at the same time at one gateway, and as many in one engine.
    "MILLRACE_ADAPTIVE_LIMITS_MAX_STREAMS": "1024",
    "MILLRACE_QUEUE_MAX_DEPTH": "1024",
    "MILLRACE_STREAMS_RETENTION_S": "900",
    "MILLRACE_STREAMS_RETAINED_MAX": "100000",
    "MILLRACE_STREAMS_RETENTION_BYTES": str(1 << 30),
    "MILLRACE_SERVER_DRAIN_TIMEOUT_MS": "20000",
    "MILLRACE_SERVER_CONNECTIONS_PER_IP_MAX": "4096",
    "MILLRACE_SERVER_OPEN_REQUESTS_MAX": "4096",
}
# For processes that wait for one another on busy processors; nothing is measured with it.
PATIENCE_S = 300


def free_ports(count):
    """The first of `count` ports in a row that were free a moment ago."""
    for first in range(20011 + os.getpid() % 500 * 20, 60000, 20):
        sockets = []
        try:
            for port in range(first, first + count):
                found = socket.socket()
                sockets.append(found)
                found.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for found in sockets:
                found.close()
    raise RuntimeError("no free ports")


def nginx_program():
    """Where nginx is, as the script finds it: `NGINX`, or on the path; `None` without it."""
    program = os.environ.get("NGINX", "nginx")
    return program and shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") or None


def has_nginx():
    """Whether the script finds it."""
    return nginx_program() is not None


def get_json(url):
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)


async def until(what, is_true):
    """Waits until a condition holds; `is_true` may fail to connect."""
    for _ in range(PATIENCE_S * 10):
        try:
            if is_true():
                return
        except (OSError, ValueError, KeyError):
            pass
        await asyncio.sleep(0.1)
    raise TimeoutError(f"not within {PATIENCE_S} s: {what}")


class Cluster:
    """Three NATS servers, gateways, engines, nginx."""

    def __init__(self, millrace, nats_server, folder, engines=3, gateways=2, settings=(), model=""):
        shutil.rmtree(folder, ignore_errors=True)
        self.folder = pathlib.Path(folder)
        self.engines = [f"engine-{n + 1}" for n in range(engines)]
        self.gateways = [f"gateway-{n + 1}" for n in range(gateways)]
        self.nats = ["nats-1", "nats-2", "nats-3"]
        first = free_ports(20)
        self.first_port = {"nginx": first, "gateway": first + 1, "engine": first + 5}
        self.first_port |= {"nats": first + 11}  # of the page that shows the state
        ports = {"NGINX_PORT": first, "GATEWAY_PORT": first + 1, "ENGINE_PORT": first + 5, "NATS_PORT": first + 14}
        ports |= {"NATS_MONITOR_PORT": first + 11, "NATS_ROUTE_PORT": first + 17}
        self.variables = os.environ | SETTINGS | dict(settings) | {name: str(port) for name, port in ports.items()}
        self.variables |= {"MILLRACE": str(millrace), "NATS_SERVER": str(nats_server), "STATE": str(folder), "MODEL": model}
        self.variables |= {"ENGINES": str(engines), "GATEWAYS": str(gateways), "WAIT": str(PATIENCE_S), "NO_PROXY": "*"}

    def run(self, *arguments, **variables):
        """Calls the script; not inside of the event loop while clients read."""
        done = subprocess.run([SCRIPT, *arguments], env=self.variables | variables, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"cluster.sh {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout

    async def call(self, *arguments, **variables):
        """Calls the script beside what else happens."""
        return await asyncio.to_thread(self.run, *arguments, **variables)

    def url(self, name):
        """Where a process, or `nginx`, listens."""
        kind, _, number = name.partition("-")
        return f"http://127.0.0.1:{self.first_port[kind] + int(number or 1) - 1}"

    @property
    def front(self):
        """Where clients connect."""
        return self.url("nginx") if has_nginx() else self.url("gateway-1")

    @property
    def nats_ports(self):
        """Where the NATS servers listen for clients."""
        first = int(self.variables["NATS_PORT"])
        return [first + n for n in range(len(self.nats))]

    def pid(self, name):
        return int((self.folder / "pids" / name).read_text().split()[0])

    def signal(self, name, what):
        os.kill(self.pid(name), what)

    async def kill(self, *names):
        """Ends processes as `kill -9` does, all at one time."""
        for name in names:
            self.signal(name, signal.SIGKILL)
        # The script sees that they have ended.
        await self.call("stop", *names)

    def metric(self, gateway, name):
        """The sum of a metric over its labels; 0 if there is none."""
        with urllib.request.urlopen(f"{self.url(gateway)}/metrics", timeout=30) as reply:
            text = reply.read().decode()
        values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)
        return sum(map(float, values))

    def metrics(self, name, processes=None):
        return sum(self.metric(process, name) for process in processes or self.gateways)

    def end(self):
        """Ends all processes, also stopped ones."""
        for file in (self.folder / "pids").glob("*"):
            try:
                self.signal(file.name, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.run("stop")

    def all_are_there(self):
        """Whether every gateway knows the processes that run, and no others, and that the engines take requests."""
        names = self.engines + self.gateways
        reports = {name: get_json(f"{self.url(name)}/v1/cluster") for name in names}
        ids = {report["instance"] for report in reports.values()}
        for gateway in self.gateways:
            alive = [i for i in reports[gateway]["instances"] if i["state"] == "alive"]
            engines = [i for i in alive if i["role"] == "engine" and i["models"] and i["models"][0].get("load")]
            # An id is that of one process: one that was killed may still count as alive.
            if {i["id"] for i in alive} != ids or len(engines) != len(self.engines):
                return False
        return True

    async def busiest_engine(self, streams):
        """The engine with most requests, as the first gateway knows from heartbeats; any, if all streams have ended."""
        places = {self.url(name).removeprefix("http://"): name for name in self.engines}
        while True:
            # In this thread: another one would wait for the clients' work.
            instances = get_json(f"{self.url('gateway-1')}/v1/cluster")["instances"]
            engines = [i for i in instances if i["state"] == "alive" and i["role"] == "engine" and i["models"]]
            loads = {places[i["address"]]: i["models"][0].get("load") or {} for i in engines}
            busy = {name: load.get("running", 0) + load.get("queued", 0) for name, load in loads.items()}
            if max(busy.values(), default=0) or all(task.done() for task in streams.tasks):
                return max(busy, key=busy.get)
            await asyncio.sleep(0.02)

    async def whole(self):
        """Starts what does not run, and waits until all know each other: before each fault."""
        await self.call("start")
        await until("all instances know each other", self.all_are_there)

    def records(self):
        """The JetStream stream of the records, as its leader sees it: messages, subjects, bytes; `None` if there is none."""
        for name in self.nats:
            try:
                page = get_json(f"{self.url(name)}/jsz?streams=true&config=true")
            except OSError:
                continue
            for account in page.get("account_details", []):
                for stream in account.get("stream_detail", []):
                    group = stream.get("cluster", {})
                    if group.get("leader") == name and stream["name"].endswith("_records"):
                        return stream["state"] | {"leader": name, "replicas": 1 + len(group.get("replicas") or [])}
        return None

    def meta_leader(self):
        """The NATS server that leads JetStream."""
        for name in self.nats:
            try:
                leader = get_json(f"{self.url(name)}/jsz").get("meta_cluster", {}).get("leader")
            except OSError:
                continue
            if leader:
                return leader
        return None


class Alone:
    """One process with `all`, without NATS."""

    def __init__(self, millrace, settings=(), model=""):
        port = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        variables = os.environ | SETTINGS | dict(settings) | {"NO_PROXY": "*", "MILLRACE_LOG_FILTER": "warn", "MILLRACE_JOURNAL_DIRECTORY": ""}
        command = [str(millrace), "serve", "--bind", f"127.0.0.1:{port}", *([model] if model else [])]
        self.process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)

    async def ready(self):
        await until("a process is ready", lambda: urllib.request.urlopen(f"{self.url}/health/readiness", timeout=5))

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=PATIENCE_S)
