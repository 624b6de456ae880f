"""The web page in a real browser: chromium, driven by Playwright, against the binary.

    python tools/page/page_suite.py MILLRACE CHROMIUM [CHECK...] [--screenshots FOLDER | --measure]
"""

import json
import os
import pathlib
import re
import sys
import tempfile
import time
import traceback

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from measurements import measure
from screenshots import take_screenshots
from world import ARGS, World

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
    page.get_by_role("button", name="Break it").click()
    page.get_by_role("button", name=name).click()


def stored_stream(page):
    """Id of the stream of the last answer."""
    link = page.locator(".message.assistant").last.get_by_role("link", name="Stream")
    return link.get_attribute("href").split("/")[1]


@check
def chat(world):
    """a question is answered, with measures, and the conversation is there after a reload"""
    with world.page(world.toy) as page:
        expect(page.get_by_role("note")).to_contain_text("toy")
        ask(page, "Tell me about rivers.")
        is_done(page)
        text = answer(page)
        assert len(text) > 20, text
        expect(page.locator(".measures")).to_contain_text("tokens/s")
        page.reload()
        expect(page.locator(".message")).to_have_count(2)
        assert answer(page) == text
        assert page.locator("#conversations li").count() == 1


@check
def reload_in_the_middle(world):
    """F5 in the middle of an answer: it goes on, and the text is that of an answer without a reload"""
    with world.page(world.random) as page:
        long_answer(page)
        is_done(page)
        whole = answer(page)
        hold(page)
        page.get_by_role("button", name="Regenerate").click()
        page.wait_for_timeout(1500)
        assert is_open(page)
        page.reload()
        is_done(page)
        is_text(page, whole)


@check
def lost_network(world):
    """offline for five seconds and a cut socket: the answer goes on where it was"""
    with world.page(world.random) as page:
        long_answer(page)
        is_done(page)
        whole = answer(page)
        hold(page)
        page.get_by_role("button", name="Regenerate").click()
        page.get_by_role("button", name="Cut the socket").click()
        page.wait_for_timeout(1200)
        page.context.set_offline(True)
        page.wait_for_timeout(1500)
        page.context.set_offline(False)
        page.get_by_role("button", name="Offline for 5 s").click()
        page.get_by_role("button", name="Read 2 tokens/s").click()
        is_done(page)
        is_text(page, whole)


@check
def restarted_server(world):
    """the server is killed and started again: the answer goes on"""
    with world.page(world.random) as page:
        long_answer(page)
        is_done(page)
        whole = answer(page)
        hold(page)
        page.get_by_role("button", name="Regenerate").click()
        page.wait_for_timeout(1200)
        world.random.kill()
        page.wait_for_timeout(500)
        world.random.start()
        page.get_by_role("button", name="Read 2 tokens/s").click()
        is_done(page)
        is_text(page, whole)


@check
def two_tabs(world):
    """two tabs of one conversation have equal text, also where the second comes in the middle"""
    with world.page(world.random) as page:
        long_answer(page)
        is_done(page)
        whole = answer(page)
        hold(page)
        page.get_by_role("button", name="Regenerate").click()
        page.wait_for_timeout(1200)
        second = page.context.new_page()
        second.goto(page.url)
        is_done(second)
        page.get_by_role("button", name="Read 2 tokens/s").click()
        is_done(page)
        is_text(page, whole)
        is_text(second, whole)


@check
def slow_reader(world):
    """a reader that stops parks its own stream and no other, and the river says whose stall that is"""
    with world.page(world.random) as page:
        set_options(page, **{"Longest answer": 2000, "Temperature": 0})
        hold(page, "Stop reading")
        ask(page, LONG)
        deadline = time.monotonic() + 20
        while True:
            parked = [stream for stream in world.random.get("/v1/streams?limit=100")["data"] if stream.get("parked") == "credit"]
            if parked:
                break
            assert time.monotonic() < deadline, "the stream is not parked"
            time.sleep(0.1)
        other = page.context.new_page()
        other.goto(world.random.url + "/#chat")
        set_options(other, **{"Longest answer": 50})
        ask(other, "Hello")
        is_done(other)
        other.goto(world.random.url + "/#river")
        other.get_by_text("As a table").click()
        row = other.locator(".lane-table tbody tr", has_text=parked[0]["id"][:8])
        expect(row).to_contain_text("reader")
        page.get_by_role("button", name="Stop reading").click()
        is_done(page)


@check
def keys(world):
    """the key is asked for and kept out of addresses; streams of another key are 404 and not in the river"""
    with world.page(world.keyed) as page:
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        page.get_by_label("Key", exact=True).fill(world.keys[0])
        page.get_by_role("button", name="Use the key").click()
        expect(page.get_by_label("Model", exact=True)).to_have_value("random")
        long_answer(page)
        id = stored_stream(page)
        is_done(page)
        assert world.keys[0] not in page.url
        assert world.keys[0] not in page.evaluate("JSON.stringify(localStorage)")
        with world.page(world.keyed) as other:
            other.get_by_label("Key", exact=True).fill(world.keys[1])
            other.get_by_role("button", name="Use the key").click()
            expect(other.get_by_role("dialog")).to_be_hidden()
            other.goto(f"{world.keyed.url}/#stream/{id}")
            expect(other.get_by_role("alert")).to_contain_text(re.compile("no such stream|not found|does not exist|unknown", re.I))
            other.goto(f"{world.keyed.url}/#river")
            expect(other.locator(".summary")).to_contain_text("No streams now")


HOSTILE = [
    "<script>window.hacked = 1</script><img src=x onerror=\"window.hacked = 1\">\n\n",
    "[click](javascript:window.hacked=1) ![i](https://example.org/x.png)\n\n",
    "\u202eright to left\u202c \u05e9\u05dc\u05d5\u05dd \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301\n\n",
    "x" * 200_000 + "\n\n```html\n<b onclick=\"window.hacked=1\">\n```\n",
    "> " * 3000 + "\n" + "[" * 5000 + "*" * 5000,
]


@check
def hostile_text(world):
    """what a model writes is text: no script, no image, no request, whatever it is"""
    frames = [{"type": "started", "job_id": "x", "model": "m"}]
    frames += [{"type": "token", "t": text, "i": at} for at, text in enumerate(HOSTILE)]
    frames += [{"type": "end", "tokens_out": len(HOSTILE), "decode_time_ms": 1, "stop_reason": "EOS"}]
    body = "".join(f"id: x:{at}\ndata: {json.dumps(frame)}\n\n" for at, frame in enumerate(frames)) + "data: [DONE]\n\n"
    with world.page(world.toy) as page:
        page.route("**/v1/inference", lambda route: route.fulfill(content_type="text/event-stream", body=body, headers={"x-stream-id": "f" * 32}))
        page.route("**/ack", lambda route: route.fulfill(json={}))
        ask(page, "Be evil")
        is_done(page)
        page.wait_for_timeout(300)
        markdown = page.locator(".message.assistant .markdown")
        assert page.evaluate("window.hacked") is None
        assert markdown.locator("script, img, iframe, [onclick], [onerror]").count() == 0
        assert markdown.locator("a").count() == 1, "the picture is a link, the script is not"
        assert "<script>window.hacked = 1</script>" in markdown.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "a long line does not widen the page"


@check
def keyboard(world):
    """everything of a chat without a mouse: ask, stop, edit, a new chat"""
    with world.page(world.random) as page:
        set_options(page, **{"Longest answer": 3000, "Temperature": 0})
        hold(page)
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("/")
        page.keyboard.type(LONG)
        page.keyboard.press("Enter")
        expect(page.locator(".measures")).to_contain_text("tokens")
        page.keyboard.press("Escape")
        is_done(page)
        expect(page.locator(".message.assistant .measures")).to_contain_text("stopped")
        tab_to(page, "Edit")
        page.keyboard.press("Enter")
        page.keyboard.type(" again")
        page.keyboard.press("Control+Enter")
        expect(page.locator(".branches").first).to_contain_text("2/2")
        page.keyboard.press("Escape")
        is_done(page)
        page.keyboard.press("Control+k")
        expect(page.get_by_role("heading", name="Ask something")).to_be_visible()


def tab_to(page, name):
    """Moves the focus with the tabulator until a button of this name has it."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == name:
            return
    raise AssertionError(f"the button {name} is not reached")


@check
def schema_and_refusals(world):
    """an answer under a schema says that it is valid; an image is refused in words"""
    with world.page(world.toy) as page:
        page.get_by_role("button", name="System & options").click()
        page.get_by_label("Answer schema").fill('{"type":"object","properties":{"animal":{"enum":["fox","otter"]}},"required":["animal"]}')
        page.get_by_role("button", name="System & options").click()
        ask(page, "Tell me about a fox.")
        is_done(page)
        expect(page.locator(".chip.valid")).to_have_text("schema: valid")
        page.locator(".composer").evaluate("""form => {
            const data = new DataTransfer();
            data.items.add(new File(['x'], 'cat.png', {type: 'image/png'}));
            form.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));
        }""")
        expect(page.locator(".composer .error")).to_contain_text("read text only")


@check
def stream_opened(world):
    """a stream opened: replay, the same log in three formats, pause and cancel"""
    with world.page(world.random) as page:
        set_options(page, **{"Longest answer": 3000, "Temperature": 0})
        hold(page)
        ask(page, LONG)
        expect(page.locator(".measures")).to_contain_text("tokens")
        id = stored_stream(page)
        watcher = page.context.new_page()
        watcher.goto(f"{world.random.url}/#stream/{id}")
        expect(watcher.locator(".stream-view .markdown").last).not_to_be_empty()
        watcher.get_by_role("button", name="Read the bytes").click()
        formats = watcher.locator(".formats section")
        expect(formats).to_have_count(3)
        expect(formats.nth(1)).to_contain_text("chat.completion.chunk")
        watcher.get_by_role("button", name="Pause", exact=True).click()
        expect(watcher.locator(".facts")).to_contain_text("paused")
        watcher.get_by_role("button", name="Resume", exact=True).click()
        watcher.get_by_role("button", name="Cancel").click()
        expect(watcher.locator(".facts")).to_contain_text("cancelled")
        page.get_by_role("button", name="Read 2 tokens/s").click()
        is_done(page)


JOB = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 3000, "ignore_eos": True}


@check
def queue_position(world):
    """an answer that waits says its place in the queue and who is ahead, and begins when the others have ended"""
    ahead = [json.loads(world.narrow.call("POST", "/v1/jobs", JOB))["job_id"] for _ in range(6)]
    with world.page(world.narrow) as page:
        set_options(page, **{"Longest answer": 20})
        ask(page, "Hello")
        card = page.locator(".waiting")
        expect(card).to_contain_text(re.compile(r"Number [1-6] in the queue"))
        expect(card).to_contain_text(re.compile("Predicted start in|No prediction yet"))
        expect(card).to_contain_text(re.compile(r"Ahead of you \(class \w+\): \d|The next free slot is yours"))
        for job in ahead:
            world.narrow.call("DELETE", f"/v1/jobs/{job}")
        is_done(page)
        assert answer(page)


@check
def retry_after(world):
    """a rejected request counts down to the time that the server promised, and is sent again then"""
    rejections = [{"error": {"code": "overloaded", "message": "the queue is full"}}]

    def reject(route):
        if rejections:
            route.fulfill(status=503, headers={"retry-after": "3", "retry-after-ms": "2500"}, json=rejections.pop())
        else:
            route.continue_()

    with world.page(world.toy) as page:
        page.route("**/v1/inference", reject)
        ask(page, "Tell me about rivers.")
        expect(page.locator(".waiting")).to_contain_text(re.compile(r"Asked again in (\d+ ms|[12]\.\d s)"))
        expect(page.locator(".waiting")).to_contain_text("the queue is full")
        is_done(page)
        assert not rejections and len(answer(page)) > 20


@check
def pull(world):
    """a model is downloaded with its progress, is in the list then, and answers"""
    with world.page(world.narrow, "/#models") as page:
        page.get_by_label("Another one").fill("hf.co/org/repo")
        page.get_by_role("button", name="Pull", exact=True).click()
        row = page.locator(".pull")
        row.get_by_role("button", name="Chat with it").wait_for()
        assert row.locator("progress").evaluate("bar => bar.value") == 1
        expect(page.locator('.card[data-model*="org/repo"]')).to_have_count(1)
        row.get_by_role("button", name="Chat with it").click()
        set_options(page, **{"Longest answer": 20})
        ask(page, "Hello")
        is_done(page)
        assert answer(page)


@check
def compare(world):
    """one prompt in two lanes, with choices side by side"""
    with world.page(world.toy, "/#compare") as page:
        page.get_by_label("Choices of each (n)").fill("3")
        page.get_by_label("Tokens").fill("40")
        page.get_by_role("button", name="Run").click()
        expect(page.locator(".run")).to_have_count(2)
        expect(page.locator(".run .choice")).to_have_count(6)
        expect(page.locator(".run .measures").first).to_contain_text("between tokens")


@check
def accessible(world):
    """axe-core finds nothing in any view, light or dark, wide or on a phone"""
    for scheme, size in [("light", (1200, 800)), ("dark", (390, 844))]:
        viewport = {"width": size[0], "height": size[1]}
        with world.page(world.toy, color_scheme=scheme, viewport=viewport) as page:
            ask(page, "Tell me about rivers.")
            is_done(page)
            for view in ["chat", "river", "compare", "models"]:
                if view != "chat":
                    page.goto(f"{world.toy.url}/#{view}")
                page.wait_for_timeout(300)
                found = axe(page)
                assert not found, f"{view} {scheme}: {found}"
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} {scheme} is wider than the screen"


def axe(page):
    """Violations that axe-core finds. Its source is run by the debugger: the policy of the page forbids it as a script."""
    violations = Axe().run(page).response["violations"]
    return [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in violations]


@check
def export_and_import(world):
    """conversations leave as a file and come back"""
    with world.page(world.toy) as page:
        ask(page, "Tell me about rivers.")
        is_done(page)
        text = answer(page)
        with page.expect_download() as download:
            page.get_by_role("button", name="Export").click()
        file = download.value.path()
        page.on("dialog", lambda dialog: dialog.accept())
        page.locator("#conversations button").click()
        expect(page.locator("#conversations li")).to_have_count(0)
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Import").click()
        chooser.value.set_files(file)
        page.locator("#conversations a").click()
        expect(page.locator(".message")).to_have_count(2)
        assert answer(page) == text


def main():
    binary, chromium, *rest = sys.argv[1:]
    only = [name for name in rest if not name.startswith("--")]
    failed = 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGS)
        world = World(binary, browser, pathlib.Path(folder))
        try:
            if "--screenshots" in rest:
                take_screenshots(world, pathlib.Path(rest[rest.index("--screenshots") + 1]))
                return
            if "--measure" in rest:
                measure(browser, world.toy.url)
                return
            for function in CHECKS:
                if only and function.__name__ not in only:
                    continue
                began = time.monotonic()
                try:
                    function(world)
                    print(f"ok    {function.__name__} ({time.monotonic() - began:.1f} s): {function.__doc__}", flush=True)
                except Exception:
                    failed += 1
                    print(f"FAIL  {function.__name__}: {function.__doc__}", flush=True)
                    traceback.print_exc()
        finally:
            for server in world.servers:
                server.stop()
            browser.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
