"""What every suite of client checks has: the server under test, the list of checks, the run of them."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
import zlib

import receiver
from hub import Hub

CHECKS = []
MODEL = "tiny"
# Short, so that clients meet keep-alives.
KEEP_ALIVE_MS = 100


# The trained models of this repository.
MINI = pathlib.Path(__file__).resolve().parents[2] / "crates" / "millrace" / "mini"
# A question about the image of `square`, and the colors that it may have.
QUESTION = "Which color is the square?"
COLORS = {"red": (220, 30, 30), "blue": (30, 60, 220)}


def square(color):
    """A PNG file: a square of this color on white."""
    inside = range(16, 48)
    rows = (b"".join(bytes(COLORS[color] if x in inside and y in inside else (255,) * 3) for x in range(64)) for y in range(64))

    def chunk(name, data):
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def check(function):
    """Registers a check; its docstring is its label."""
    CHECKS.append(function)
    return function


class Server:
    """The binary under test with a small synthetic model, and where it listens: a free port of 127.0.0.1."""

    def __init__(self, binary, folder):
        cache = pathlib.Path(folder) / "cache"
        self.binary, self.models = binary, cache / "millrace" / "models"
        self.models.mkdir(parents=True)
        model = self.add_model(MODEL, "tiny-llama", "--quant", "Q8_0", "--train-context", "2048")
        self.hub = Hub(model.read_bytes())
        variables = os.environ | {"XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(cache), "HF_ENDPOINT": self.hub.url, "NO_PROXY": "127.0.0.1"}
        variables |= receiver.VARIABLES | {"MILLRACE_STREAMS_KEEP_ALIVE_MS": str(KEEP_ALIVE_MS)}
        # Answers are compared with one another: they must not depend on what shares a step.
        serve = [binary, "serve", str(model), "--bind", "127.0.0.1:0", "--deterministic"]
        self.process = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, env=variables)
        for line in self.process.stdout:
            found = re.search(r" serves .*(http://127\.0\.0\.1:\d+)", line)
            if found:
                self.url = found.group(1)
                break
        else:
            raise RuntimeError("the server stopped before it listened")
        threading.Thread(target=lambda: [None for _ in self.process.stdout], daemon=True).start()

    def add_model(self, name, preset, *flags):
        """A synthetic model in the server's model directory, which is loaded on demand."""
        model = self.models / f"{name}.gguf"
        subprocess.run([self.binary, "synth", model, "--preset", preset, *flags], check=True, stdout=subprocess.DEVNULL)
        return model

    @contextlib.contextmanager
    def seeing(self):
        """The trained model that sees images, on this machine for a while; gives its name."""
        name = "millrace-mini-vision"
        files = [MINI / f"{name}.gguf", MINI / f"{name}.mmproj.gguf"]
        copies = [pathlib.Path(shutil.copy(file, self.models)) for file in files]
        try:
            yield name
        finally:
            self.unload(name)
            for copy in copies:
                copy.unlink()

    def unload(self, name):
        """Unloads a model, if it is loaded, and waits until it is gone."""
        body = json.dumps({"model": name, "keep_alive": 0}).encode()
        request = urllib.request.Request(f"{self.url}/api/generate", body, {"content-type": "application/json"})
        urllib.request.urlopen(request).close()
        deadline = time.monotonic() + 30
        while any(model["name"].startswith(name) for model in self.running_models()):
            assert time.monotonic() < deadline, f"{name} is still loaded"
            time.sleep(0.02)

    def running_models(self):
        with urllib.request.urlopen(f"{self.url}/api/ps") as reply:
            return json.load(reply)["models"]

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=60)

    def metric(self, name):
        with urllib.request.urlopen(f"{self.url}/health") as reply:
            return json.load(reply)["engine"][name]

    def wait_until_idle(self):
        """Waits until nothing runs."""
        deadline = time.monotonic() + 30
        while self.metric("running") + self.metric("queued") > 0:
            assert time.monotonic() < deadline, "work goes on after the client left"
            time.sleep(0.02)


def run(make_client, after=None):
    """Runs every check with a client of the server whose binary is the first argument."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        server = Server(sys.argv[1], folder)
        client = make_client(server.url)
        for function in CHECKS:
            try:
                function(client, server)
                print(f"ok    {function.__name__}: {function.__doc__}")
            except Exception:
                failed += 1
                print(f"FAIL  {function.__name__}: {function.__doc__}")
                traceback.print_exc()
        if after:
            after(client)
        if server.stop() != 0:
            failed += 1
            print("FAIL  the server did not stop cleanly")
    print(f"{len(CHECKS) + 1 - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
