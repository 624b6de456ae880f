"""Servers as processes, and load on them from `millrace bench serve`."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

START_S = 180
STOP_S = 30


class Server:
    """A process that serves; ended by its own pid."""

    def __init__(self, command, log):
        self.log = open(log, "w")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, text=True)

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
    def __init__(self, binary, model, threads, sequences, log):
        super().__init__([str(binary), "serve", str(model), "--threads", str(threads),
                          "--sequences", str(sequences), "--preset", "batch", "--bind", "127.0.0.1:0"], log)
        # It listens before its model is loaded; the line that says "serves" comes after.
        line = next((line for line in self.process.stdout if " serves " in line), None)
        if line is None:
            raise RuntimeError(f"millrace does not serve: see {log}")
        self.url = "http://" + line.strip().rsplit("http://", 1)[1]


class LlamaCppServer(Server):
    """The server of llama.cpp's Python package. It answers one request at a time."""

    def __init__(self, model, threads, positions, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        super().__init__([sys.executable, "-m", "llama_cpp.server", "--model", str(model),
                          "--n_ctx", str(positions), "--n_threads", str(threads),
                          "--n_threads_batch", str(threads), "--logits_all", "false",
                          "--interrupt_requests", "false", "--verbose", "false",
                          "--host", "127.0.0.1", "--port", str(port)], log)
        self.process.stdout.close()
        self.url = f"http://127.0.0.1:{port}"
        self.wait(log)

    def wait(self, log):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/v1/models", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"llama_cpp.server does not serve: see {log}")
