"""Fixtures of the page's checks: servers of their own, and a browser with fresh profiles."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import urllib.request

sys.path.append(str(pathlib.Path(__file__).parents[1] / "clients"))
from hub import Hub  # noqa: E402

ARGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run"]
# Random weights: they say something else after each token, and do not end soon.
PRESET = "tiny-llama"
# A dozen tokens a second for each of a few clients, on two cores.
SLOW_SHAPE = ["--preset", "qwen3-0.6b", "--layers", "8", "--vocab", "8192", "--quant", "Q4_0"]


class Server:
    """The binary on a port of its own, which it keeps when it is started again."""

    def __init__(self, binary, folder, *arguments, model=None, **variables):
        self.command = [binary, "serve", *([str(model)] if model else []), "--journal", str(folder / "journal"), "--deterministic", *arguments]
        self.variables = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_DATA_HOME": str(folder / "cache"), "NO_PROXY": "127.0.0.1"} | variables
        self.port = 0
        self.start()

    def start(self):
        command = [*self.command, "--bind", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self.variables)
        for line in self.process.stdout:
            found = re.search(r" serves .*(http://127\.0\.0\.1:(\d+))", line)
            if found:
                self.url, self.port = found.group(1), int(found.group(2))
                break
        else:
            raise RuntimeError("the server stopped before it listened")
        threading.Thread(target=lambda: [None for _ in self.process.stdout], daemon=True).start()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as reply:
            return json.load(reply)

    def call(self, method, path, body=None):
        """The text of a response."""
        data = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, method=method)) as reply:
            return reply.read().decode()


class World:
    """Servers, and the browser, for the checks."""

    def __init__(self, binary, browser, folder):
        self.browser, self.binary, self.folder = browser, binary, folder
        random = folder / "random.gguf"
        subprocess.run([binary, "synth", str(random), "--preset", PRESET, "--quant", "Q8_0", "--train-context", "4096"], check=True, stdout=subprocess.DEVNULL)
        for name in ("toy", "random", "keyed", "narrow"):
            (folder / name).mkdir()
        self.toy = Server(binary, folder / "toy")
        self.random = Server(binary, folder / "random", model=random)
        self.keys_file = folder / "keys.yaml"
        self.keys = [new_key(binary, self.keys_file, name) for name in ("one", "two")]
        self.keys.append(new_key(binary, self.keys_file, "boss", "--scope", "admin", "--scope", "inference"))
        self.keyed = Server(binary, folder / "keyed", "--keys", str(self.keys_file), model=random)
        # One slot, so that requests wait.
        self.narrow = Server(binary, folder / "narrow", "--sequences", "1", model=random)
        self.servers = [self.toy, self.random, self.keyed, self.narrow]

    def start_first(self):
        """A server as it is after the installation, and a hub with a model, so that one can be fetched."""
        place = self.folder / "first"
        place.mkdir()
        hub = Hub((self.folder / "random.gguf").read_bytes())
        self.servers.append(Server(self.binary, place, HF_ENDPOINT=hub.url))
        return self.servers[-1]

    def start_seeing(self, model):
        """A server whose model has a tower for images."""
        place = self.folder / "seeing"
        place.mkdir()
        self.servers.append(Server(self.binary, place, model=model))
        return self.servers[-1]

    def start_described(self, address):
        """A server whose model reads text only; the server at `address` describes images for it."""
        place = self.folder / "described"
        place.mkdir()
        proxy = {"MILLRACE_VISION_PROXY_MODEL": "seer", "MILLRACE_VISION_PROXY_ADDRESS": address}
        self.servers.append(Server(self.binary, place, **proxy))
        return self.servers[-1]

    def start_slow(self, name, *arguments, **variables):
        """A server whose model needs a while for each token, as real ones do, with a small credit window."""
        model, place = self.folder / "slow.gguf", self.folder / name
        place.mkdir()
        if not model.exists():
            subprocess.run([self.binary, "synth", str(model), *SLOW_SHAPE, "--train-context", "4096"], check=True, stdout=subprocess.DEVNULL)
        window = {"MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS": "16"}
        self.servers.append(Server(self.binary, place, *arguments, model=model, **window, **variables))
        return self.servers[-1]

    @contextlib.contextmanager
    def page(self, server, path="/", **options):
        """A page of a fresh profile; whatever the console or the policy complains about fails the check."""
        context = self.browser.new_context(**options)
        context.set_default_timeout(20_000)
        page = context.new_page()
        problems = watch(page, server)
        page.goto(server.url + path)
        try:
            yield page
            assert not problems, problems
        finally:
            context.close()


def new_key(binary, file, name, *scopes):
    out = subprocess.run([binary, "keys", "--file", str(file), "new", name, *scopes], check=True, capture_output=True, text=True)
    return out.stdout.strip()


def watch(page, server):
    """Errors of the page, and requests to other hosts."""
    problems = []
    quiet = ("net::ERR", "Failed to load resource", "the server responded with a status")

    def take_console(message):
        if message.type == "error" and not any(word in message.text for word in quiet):
            problems.append(message.text)

    def take_request(request):
        if not request.url.startswith((server.url, "data:", "blob:")):
            problems.append(f"a request to {request.url}")

    page.on("console", take_console)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", take_request)
    return problems
