"""An upstream whose answers are given: a server of OpenAI's `/v1/completions` on a free port of 127.0.0.1."""

import http.server
import json
import threading


class ScriptedUpstream:
    """Answers each request with the next text, and the last text for good."""

    def __init__(self, *texts):
        self.texts, self.answered = list(texts), 0
        script = self

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply("application/json", json.dumps({"object": "list", "data": [{"id": "scripted", "object": "model"}]}))

            def do_POST(self):
                self.rfile.read(int(self.headers.get("content-length") or 0))
                text = script.texts[min(script.answered, len(script.texts) - 1)]
                script.answered += 1
                # In pieces, so that what is parsed is cut.
                pieces = [(text[at : at + 7], None) for at in range(0, len(text), 7)] + [("", "stop")]
                events = [json.dumps({"choices": [{"index": 0, "text": piece, "finish_reason": end}]}) for piece, end in pieces]
                self.reply("text/event-stream", "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]))

            def reply(self, kind, body):
                body = body.encode()
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
