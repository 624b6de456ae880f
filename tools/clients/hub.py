"""A hub of one repository, `org/repo`, with one GGUF file: what `millrace pull` needs of Hugging Face's."""

import hashlib
import http.server
import json
import threading

FILE = "Tiny-Q8_0.gguf"


class Hub:
    """On a free port of 127.0.0.1, until the process ends."""

    def __init__(self, content):
        digest = hashlib.sha256(content).hexdigest()
        listed = [{"type": "file", "path": FILE, "size": len(content), "oid": "0", "lfs": {"oid": digest, "size": len(content)}}]

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps(listed).encode() if self.path.startswith("/api/models/org/repo/tree/") else content
                self.send_response(200 if "/org/repo/" in self.path else 404)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.digest = digest
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
