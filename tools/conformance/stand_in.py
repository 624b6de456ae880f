"""Between a suite that makes up the names of responses and a server that remembers the ones it gave.

OpenAI's own tests ask for `resp_677efb…`, which their mock server answers for whatever it is called. Here each request
that names such a response, or a stored chat completion, gets one made for it first, and its name instead of the made-up
one. Nothing else of a request, and nothing of an answer, is changed.
"""

import http.client
import http.server
import json
import re
import threading

# As they are written in `tests/api_resources/test_responses.py` and `responses/`.
MADE_UP = re.compile(rb"resp_677efb5139a88190b512bc3fef8e535d|resp_123|previous_response_id(?=\")|(?<=/)response_id")
KEYS = re.compile(rb'"previous_response_id"\s*:')
ASKED = {"model": "millrace-mini", "input": "Hello", "max_output_tokens": 4}
# In `tests/api_resources/chat`: a completion, and the last item of the page before in a list of completions or messages.
COMPLETION = re.compile(r"(?<=/chat/completions/)completion_id")
AFTER = re.compile(r"(?<=[?&]after=)after(?=&|$)")
# The client's type of a stored message has the role of the assistant only.
CHAT = {"model": "millrace-mini", "messages": [{"role": "assistant", "content": "Hello"}], "max_tokens": 4, "store": True}
HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}


class StandIn:
    """Listens on a free port of 127.0.0.1 until the process ends."""

    def __init__(self, server):
        class Passes(http.server.BaseHTTPRequestHandler):
            def pass_on(self):
                size = int(self.headers.get("content-length") or 0)
                path, body = renamed(server, self.path, self.rfile.read(size))
                there = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
                head = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP | {"host"}}
                there.request(self.command, path, body or None, head)
                reply = there.getresponse()
                self.send_response(reply.status)
                for name, value in reply.getheaders():
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                # The end of the connection is the end of the answer, streamed or not.
                self.send_header("connection", "close")
                self.end_headers()
                while piece := reply.read1():
                    self.wfile.write(piece)
                there.close()

            def handle(self):
                try:
                    super().handle()
                except OSError:
                    pass  # A client that leaves mid-stream, as these tests do.

            do_GET = do_POST = do_DELETE = pass_on

            def log_message(self, *_):
                pass

        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Passes)
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}"

    def stop(self):
        self.httpd.shutdown()
        self.httpd.server_close()


def renamed(server, path, body):
    """The path and the body with the name of a response that is there, where they had a made-up one."""
    if "/chat/completions" in path and (COMPLETION.search(path) or AFTER.search(path)):
        name = json.loads(server.post("/v1/chat/completions", CHAT))["id"]
        last = f"{name}-0" if "/messages" in path else name
        return AFTER.sub(last, COMPLETION.sub(name, path)), body
    # The key `previous_response_id` is not its value of the same spelling.
    pieces = KEYS.split(body)
    if not MADE_UP.search(path.encode()) and not any(map(MADE_UP.search, pieces)):
        return path, body
    # A response that is asked for may go on; one that is gone on from has ended.
    asked = ASKED | {"background": not body}
    name = json.loads(server.post("/v1/responses", asked))["id"].encode()
    body = b'"previous_response_id":'.join(MADE_UP.sub(name, piece) for piece in pieces)
    return MADE_UP.sub(name, path.encode()).decode(), body
