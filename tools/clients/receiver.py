"""A receiver of events on a port of its own."""

import http.server
import queue
import threading

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
# What a server needs to send to the receiver.
VARIABLES = {
    "MILLRACE_WEBHOOKS_ALLOWED_HOSTS": "127.0.0.1:*",
    "MILLRACE_WEBHOOKS_ALLOW_HTTP": "true",
    "MILLRACE_WEBHOOKS_ALLOW_PRIVATE_ADDRESSES": "true",
    "MILLRACE_WEBHOOK_SECRET": SECRET,
}


class Receiver:
    """Accepts every event; `received` has pairs of header fields and body."""

    def __init__(self):
        self.received = received = queue.Queue()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                self.send_response(204)
                self.end_headers()
                received.put((dict(self.headers), body))

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
