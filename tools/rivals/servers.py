"""Servers as processes, and load on them from `millrace bench serve`."""

import json
import os
import socket
import subprocess
import time
import urllib.request

START_S = 180
STOP_S = 30
# Comments of a silent stream: SGLang's bench takes them for JSON.
SILENT = {"MILLRACE_STREAMS_KEEP_ALIVE_MS": "3600000", "LLAMA_ARG_SSE_PING_INTERVAL": "-1"}


class Server:
    """A process that serves; ended by its own pid."""

    def __init__(self, command, log, stdout=None):
        self.log = open(log, "w")
        self.process = subprocess.Popen(
            [str(word) for word in command], stdout=stdout or self.log, stderr=self.log,
            text=True, env=os.environ | SILENT)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def load(self, binary, args):
        """One run of load, as `millrace bench serve --json` tells it."""
        command = [binary, "bench", "serve", "--url", self.url, "--pid", self.process.pid, "--json"]
        report = json.loads(subprocess.run([str(word) for word in command + args], check=True,
                                           capture_output=True, text=True).stdout)
        if report["failures"]:
            raise RuntimeError(f"{self.url}: {report['failures']}")
        return report


class Millrace(Server):
    def __init__(self, binary, model, threads, sequences, log, options=("--preset", "batch")):
        super().__init__([binary, "serve", model, "--threads", threads, "--sequences", sequences,
                          *options, "--bind", "127.0.0.1:0"], log, subprocess.PIPE)
        # It listens before its model is loaded; the line that says "serves" comes after.
        line = next((line for line in self.process.stdout if " serves " in line), None)
        if line is None:
            raise RuntimeError(f"millrace does not serve: see {log}")
        self.url = "http://" + line.strip().rsplit("http://", 1)[1]


class LlamaServer(Server):
    """llama.cpp's own server (`llama_server.py` builds it): as many slots as clients, its defaults otherwise."""

    def __init__(self, binary, model, threads, slots, positions, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        super().__init__([binary, "-m", model, "-np", slots, "-c", slots * positions, "-t", threads, "-tb", threads,
                          "--host", "127.0.0.1", "--port", port], log)
        self.url = f"http://127.0.0.1:{port}"
        self.wait(log)

    def wait(self, log):
        """Until the model is loaded: `/health` is a 503 before."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"llama-server does not serve: see {log}")
