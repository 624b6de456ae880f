"""The server under test: the built-in model, a free port of 127.0.0.1, and the names that the suites ask for."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request

# Suites name models of their authors. Each name is made one of the built-in model's, as any user would: `/api/copy`.
NAMES = [
    "gpt-6-astra",
    "gpt-3.5-turbo-instruct",
    "text-embedding-3-small",
    "claude-opus-5-5",
    "gpt-4.1",
    "model",
    "model_id",
    "other",
    "test",
    # Those of which Anthropic's client warns that they are deprecated: a test of it asks for each.
    "claude-1.3",
    "claude-1.3-100k",
    "claude-instant-1.1",
    "claude-instant-1.1-100k",
    "claude-instant-1.2",
    "claude-3-sonnet-20240229",
    "claude-3-opus-20240229",
    "claude-2.1",
    "claude-2.0",
    "claude-3-7-sonnet-latest",
    "claude-3-7-sonnet-20250219",
    "claude-3-5-haiku-latest",
    "claude-3-5-haiku-20241022",
    "claude-opus-4-0",
    "claude-opus-4-20250514",
    "claude-sonnet-4-0",
    "claude-sonnet-4-20250514",
    "claude-mythos-preview",
    "claude-sonnet-4-5",
    "claude-sonnet-4-5-20250929",
]
MODEL = "millrace-mini"
# Of its models, one sees images.
MODELS = pathlib.Path(__file__).parents[2] / "crates/millrace/mini"
DEVICE = "MILLRACE_MODEL_DEVICE"
# A driver that computes on the processor compiles the kernels of a device with LLVM.
READY_S = 600


class Server:
    """Started with nothing of this machine's own: an empty cache, no settings but the device of models, no keys."""

    def __init__(self, binary, folder, sees=False):
        self.binary = binary
        self.log = open(folder / "server.log", "wb")
        is_kept = lambda name: name == DEVICE or not name.startswith("MILLRACE_")
        variables = {name: value for name, value in os.environ.items() if is_kept(name)}
        variables |= {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_DATA_HOME": str(folder / "cache"), "NO_PROXY": "127.0.0.1"}
        if sees:
            # A copy, since the names of models are kept next to them.
            variables["MILLRACE_MODELS_DIRECTORIES"] = str(shutil.copytree(MODELS, folder / "models"))
        # The same answers in every run: what a suite says must not depend on what shares a step.
        serve = [binary, "serve", "--bind", "127.0.0.1:0", "--deterministic"]
        self.process = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=self.log, text=True, env=variables)
        for line in self.process.stdout:
            found = re.search(r" serves .*(http://127\.0\.0\.1:\d+)", line)
            if found:
                self.url = found.group(1)
                break
        else:
            raise RuntimeError("the server stopped before it listened")
        threading.Thread(target=lambda: [None for _ in self.process.stdout], daemon=True).start()
        self._await_ready()
        for name in NAMES:
            self.post("/api/copy", {"source": MODEL, "destination": name})

    def _await_ready(self):
        deadline = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/health/readiness"):
                    return
            except urllib.error.HTTPError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def post(self, path, body):
        """What a JSON request is answered with, as text."""
        head = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), head)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read().decode()

    @property
    def port(self):
        return int(self.url.rsplit(":", 1)[1])

    def stop(self):
        """Whether it stopped as it should."""
        self.process.terminate()
        clean = self.process.wait(timeout=60) == 0
        self.log.close()
        return clean
