"""Requests that deploy/nginx.conf sends to a second gateway: one gateway answers by a script, the other one is not there."""

import asyncio
import http.server
import pathlib
import socket
import subprocess
import tempfile
import threading

import httpx

from processes import nginx_program, until
from rows import row

CONFIG = pathlib.Path(__file__).parents[2] / "deploy" / "nginx.conf"
# Each gateway is nginx' first choice in some of so many requests.
REQUESTS = 6


class ScriptedGateway(http.server.BaseHTTPRequestHandler):
    """Answers POST requests by the next word of `script`; closes the connection without an answer for `close`."""

    script = []

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        word = self.script.pop(0) if self.script else "unexpected"
        if word == "close":
            self.close_connection = True
            return
        self.send_response(int(word) if word.isdigit() else 500)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


async def answers_of(url, script):
    """Statuses of requests whose gateway answers each by this script, and how many requests left words unused."""
    statuses, unused = set(), 0
    async with httpx.AsyncClient() as client:
        for _ in range(REQUESTS):
            ScriptedGateway.script = list(script)
            statuses.add((await client.post(url, json={})).status_code)
            unused += bool(ScriptedGateway.script)
    return statuses, unused


def is_open(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@row("nginx: a gateway says 503, and the other one cannot be reached", short=True)
async def unreachable_after_503(_bench):
    gateway = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ScriptedGateway)
    threading.Thread(target=gateway.serve_forever, daemon=True).start()
    front = free_port()
    text = CONFIG.read_text().replace("127.0.0.1:8420", f"127.0.0.1:{front}")
    text = text.replace("127.0.0.1:8431", f"127.0.0.1:{gateway.server_port}").replace("127.0.0.1:8432", f"127.0.0.1:{free_port()}")
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "nginx.conf"
        config.write_text(text)
        nginx = subprocess.Popen([nginx_program(), "-p", folder, "-c", config, "-g", "daemon off;"], stderr=subprocess.DEVNULL)
        try:
            await until("nginx listens", lambda: is_open(front))
            passed = await answers_of(f"http://127.0.0.1:{front}/", ["503", "200"])
            lost = await answers_of(f"http://127.0.0.1:{front}/", ["close", "200"])
        finally:
            nginx.terminate()
            await asyncio.to_thread(nginx.wait)
            gateway.shutdown()
    problems = [] if passed == ({200}, 0) else [f"503, then 200: answered with {passed[0]}"]
    problems += [] if lost == ({502}, REQUESTS) else [f"a POST that was sent and not answered: {lost[0]}, {REQUESTS - lost[1]} sent again"]
    return f"passed over in {REQUESTS} requests; a POST without an answer is not sent again", problems
