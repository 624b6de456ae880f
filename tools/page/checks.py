"""What the checks of the page share: their registry, and what a reader does with a page."""

import json
import os
import re

from playwright.sync_api import expect

ANSWER_TOKENS = 600
# What the random weights say a lot about.
LONG = "Hi"
CHECKS = []


def check(function):
    """Registers a check; its docstring is its label."""
    CHECKS.append(function)
    return function


def set_options(page, **values):
    """Sampling options of the conversation, by their labels."""
    page.get_by_role("button", name="System & options").click()
    for label, value in values.items():
        page.get_by_label(label.replace("_", " ")).fill(str(value))
        page.get_by_label(label.replace("_", " ")).blur()
    page.get_by_role("button", name="System & options").click()


def long_answer(page, text=LONG):
    """Asks for an answer of a known length that does not depend on chance, and waits until it has begun."""
    set_options(page, **{"Longest answer": ANSWER_TOKENS, "Temperature": 0})
    ask(page, text)
    expect(page.locator(".message.assistant .measures")).to_contain_text(re.compile(r"[1-9]\d* tokens"))


def ask(page, text):
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def is_done(page, timeout=60_000):
    expect(page.locator(".message.assistant").last).to_have_attribute("aria-busy", "false", timeout=timeout)


def answer(page):
    return page.locator(".message.assistant").last.locator(".message-body").inner_text()


def is_text(page, wanted):
    found = answer(page)
    at = len(os.path.commonprefix([found, wanted]))
    assert found == wanted, f"{len(found)} characters in place of {len(wanted)}; from {at} on {found[at:at + 60]!r} in place of {wanted[at:at + 60]!r}"


def is_open(page):
    return page.locator(".message.assistant").last.get_attribute("aria-busy") == "true"


def hold(page, name="Read 2 tokens/s"):
    """Presses a button of “Break it”, which is in the river, and goes back to the chat."""
    break_panel(page)
    page.get_by_role("button", name=name).click()
    page.get_by_role("link", name="Chat", exact=True).click()
    expect(page.get_by_label("Message", exact=True)).to_be_visible()


def break_panel(page):
    """Opens the river with its panel “Break it”."""
    page.get_by_role("link", name="River", exact=True).click()
    opener = page.get_by_role("button", name="Break it")
    if opener.get_attribute("aria-expanded") == "false":
        opener.click()


def stored_stream(page):
    """Id of the stream of the last answer."""
    link = page.locator(".message.assistant").last.get_by_role("link", name="Stream")
    return link.get_attribute("href").split("/")[1]


def scripted(page, events):
    """The next answers are these events, and not the server's."""
    frames = [{"type": "started", "job_id": "x", "model": "m"}, *events]
    body = "".join(f"id: x:{at}\ndata: {json.dumps(frame)}\n\n" for at, frame in enumerate(frames)) + "data: [DONE]\n\n"
    page.route("**/v1/inference", lambda route: route.fulfill(content_type="text/event-stream", body=body, headers={"x-stream-id": "f" * 32}))
    page.route("**/ack", lambda route: route.fulfill(json={}))


def told(texts):
    """The events of an answer that has these texts."""
    tokens = [{"type": "token", "t": text, "i": at} for at, text in enumerate(texts)]
    return [*tokens, {"type": "end", "tokens_out": len(texts), "decode_time_ms": 1, "stop_reason": "EOS"}]
