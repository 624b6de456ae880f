"""Responses under httplint, the linter of HTTP messages of REDbot: no note of the levels `bad` and `warning`.

Run by `cargo xtask conformance`, which sets `TEST_API_BASE_URL`. The requests are here, all judgement is the linter's.
"""

import http.client
import json
import os
import urllib.parse

import pytest
from httplint import HttpRequestLinter, HttpResponseLinter
from httplint.note import levels

HOST = urllib.parse.urlsplit(os.environ["TEST_API_BASE_URL"]).netloc
PROMPT = {"model": "millrace-mini", "prompt": "Once", "max_tokens": 8}
CHAT = {"model": "millrace-mini", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
PAGE = "http://127.0.0.1:3000"
# Name: method, path, header fields, body.
REQUESTS = {
    "greeting": ("GET", "/", {}, None),
    "page": ("GET", "/", {"accept": "text/html"}, None),
    "head": ("HEAD", "/v1/models", {}, None),
    "models": ("GET", "/v1/models", {}, None),
    "model": ("GET", "/v1/models/millrace-mini", {}, None),
    "health": ("GET", "/health", {}, None),
    "metrics": ("GET", "/metrics", {}, None),
    "metrics as JSON": ("GET", "/metrics", {"accept": "application/json"}, None),
    "openapi": ("GET", "/openapi.json", {}, None),
    "docs": ("GET", "/docs", {}, None),
    "streams": ("GET", "/v1/streams", {}, None),
    "unknown path": ("GET", "/v1/nothing", {}, None),
    "unknown stream": ("GET", f"/v1/streams/{'0' * 32}", {}, None),
    "wrong method": ("DELETE", "/v1/completions", {}, None),
    "preflight": ("OPTIONS", "/v1/completions", {"origin": PAGE, "access-control-request-method": "POST"}, None),
    "foreign page": ("GET", "/v1/models", {"origin": "https://example.com"}, None),
    "malformed body": ("POST", "/v1/completions", {}, b"{"),
    "invalid field": ("POST", "/v1/completions", {}, PROMPT | {"max_tokens": -1}),
    "content encoding": ("POST", "/v1/completions", {"content-encoding": "gzip"}, PROMPT),
    "answer": ("POST", "/v1/chat/completions", {}, CHAT),
    "answer for a page": ("POST", "/v1/chat/completions", {"origin": PAGE, "content-type": "application/json"}, CHAT),
    "events": ("POST", "/v1/chat/completions", {}, CHAT | {"stream": True}),
    "resumable events": ("POST", "/v1/chat/completions", {"x-stream-resumable": "1"}, CHAT | {"stream": True}),
    "lines": ("POST", "/api/chat", {}, CHAT),
    "message": ("POST", "/v1/messages", {"anthropic-version": "2023-06-01"}, CHAT),
    "response": ("POST", "/v1/responses", {}, {"model": "millrace-mini", "input": "Hello", "max_output_tokens": 8}),
    "embeddings": ("POST", "/v1/embeddings", {}, {"model": "millrace-mini", "input": "Hello"}),
    "job": ("POST", "/v1/jobs", {}, PROMPT),
}


def notes(method, path, fields, body):
    """The linter's notes on the response to a request, as level and summary."""
    connection = http.client.HTTPConnection(HOST, timeout=60)
    body = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, body, fields)
    response = connection.getresponse()
    content = response.read()
    request = HttpRequestLinter()
    request.process_request_topline(method.encode(), f"http://{HOST}{path}".encode(), b"HTTP/1.1")
    request.process_headers([(name.encode(), value.encode()) for name, value in fields.items()])
    linter = HttpResponseLinter()
    linter.request, linter.is_head_response = request, method == "HEAD"
    linter.process_response_topline(b"HTTP/1.1", str(response.status).encode(), response.reason.encode())
    linter.process_headers([(name.encode(), value.encode()) for name, value in response.getheaders()])
    if method != "HEAD":
        linter.feed_content(content)
    linter.finish_content(True)
    connection.close()
    return [(note.level, str(note.summary)) for note in linter.notes]


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("level", [levels.BAD, levels.WARN], ids=lambda level: level.value)
def test_response(name, level):
    wrong = [summary for kind, summary in notes(*REQUESTS[name]) if kind is level]
    assert not wrong, wrong


def test_linter_finds_a_wrong_length():
    """A control: the linter is fed as it wants to be."""
    linter = HttpResponseLinter()
    linter.process_response_topline(b"HTTP/1.1", b"200", b"OK")
    linter.process_headers([(b"Content-Type", b"text/plain"), (b"Content-Length", b"10")])
    linter.feed_content(b"12345")
    linter.finish_content(True)
    assert any(note.level is levels.BAD for note in linter.notes)
