"""Checks of the other views: the river, an opened stream, the queue, models, comparison, keys, accessibility."""

import json
import re

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from checks import LONG, answer, ask, check, hold, is_done, long_answer, set_options, stored_stream


@check
def keys(world):
    """the key is asked for and kept out of addresses; streams of another key are 404 and not in the river; an administrator sees them, and whose they are"""
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
        with world.page(world.keyed) as admin:
            admin.get_by_label("Key", exact=True).fill(world.keys[2])
            admin.get_by_role("button", name="Use the key").click()
            admin.goto(f"{world.keyed.url}/#stream/{id}")
            expect(admin.locator(".facts")).to_contain_text("one")


@check
def stream_opened(world):
    """a stream opened: replay, the same log in three formats, and in all, pause and cancel"""
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
        for box in watcher.locator(".formats-chosen input").all():
            box.check()
        watcher.get_by_role("button", name="Read the bytes").click()
        expect(formats).to_have_count(10)
        for at in range(10):
            expect(formats.nth(at).locator("header")).to_contain_text(re.compile(r"[1-9]\d* bytes"))
        watcher.get_by_role("button", name="Pause", exact=True).click()
        expect(watcher.locator(".facts")).to_contain_text("paused")
        watcher.get_by_role("button", name="Resume", exact=True).click()
        watcher.get_by_role("button", name="Cancel").click()
        expect(watcher.locator(".facts")).to_contain_text("cancelled")
        hold(page)
        is_done(page)


@check
def replay(world):
    """a replay has the times at which the tokens came, also after a reload; it is scrubbed, and played at 20 times the speed"""
    with world.page(world.toy) as page:
        hold(page)
        ask(page, "Tell me about rivers.")
        page.wait_for_timeout(3000)
        hold(page)
        is_done(page)
        whole = answer(page)
        page.reload()
        page.get_by_role("link", name="Stream").click()
        note = page.get_by_text(re.compile("^[0-9.]+ m?s of "))
        expect(note).to_contain_text("times are those at which this browser received the tokens")
        text = page.locator(".stream-view .markdown").last
        # The note is there before the last events are: its length is final once the whole text is shown.
        expect(text).to_have_text(whole, use_inner_text=True)
        shown = note.inner_text()
        length = re.search(r"of ([\d.]+) s,", shown)
        assert length and 2.5 <= float(length.group(1)) <= 20, f"the engine needed some milliseconds, the reader seconds: {shown!r}"
        slider = page.get_by_label("Time of the replay")
        slider.fill("0")
        expect(text).to_be_empty()
        slider.fill(slider.evaluate("slider => String(slider.max - 20)"))
        page.wait_for_timeout(200)
        assert len(text.inner_text()) < len(whole), "the last tokens came later"
        page.get_by_label("Speed").select_option("20")
        expect(text).to_have_text(whole, use_inner_text=True)


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
    """the first screen says that the model is a toy and leads to a real one: it is downloaded with its progress, answers, and is compared"""
    with world.page(world.start_first()) as page:
        expect(page.get_by_role("note")).to_contain_text("toy")
        page.get_by_role("link", name="Get a real model").click()
        page.get_by_label("Another one").fill("hf.co/org/repo")
        page.get_by_role("button", name="Pull", exact=True).last.click()
        row = page.locator(".pull")
        row.get_by_role("button", name="Chat with it").wait_for()
        assert row.locator("progress").evaluate("bar => bar.value") == 1
        expect(page.locator('.card[data-model*="org/repo"]')).to_have_count(1)
        row.get_by_role("button", name="Chat with it").click()
        expect(page.get_by_role("heading", name="Ask something")).to_be_visible()
        expect(page.get_by_role("note")).to_have_count(0)
        set_options(page, **{"Longest answer": 20})
        ask(page, "Hello")
        is_done(page)
        assert answer(page)
        compare_two_models(page)


def compare_two_models(page):
    """Two models under each other."""
    page.get_by_role("link", name="Compare").click()
    models = page.locator(".lane-setting select")
    expect(models).to_have_count(2)
    names = models.first.locator("option").evaluate_all("options => options.map((option) => option.value)")
    assert len(names) == 2, names
    for at, name in enumerate(names):
        models.nth(at).select_option(name)
    page.get_by_label("Tokens").fill("20")
    page.get_by_role("button", name="Run").click()
    runs = page.locator(".run")
    expect(runs).to_have_count(2)
    for at, name in enumerate(names):
        expect(runs.nth(at).locator("header strong")).to_contain_text(name)
        expect(runs.nth(at).locator(".measures")).to_contain_text(re.compile("first token .* between tokens"))


@check
def load_progress(world):
    """a model that is being loaded shows how far it is"""
    with world.page(world.toy) as page:
        progress = {"model": "millrace-mini", "state": "loading", "percent": 42}
        page.route("**/v1/loading/progress", lambda route: route.fulfill(json=progress))
        page.goto(world.toy.url + "/#models")
        bar = page.get_by_label("Loading millrace-mini")
        expect(bar).to_be_visible()
        assert bar.evaluate("bar => bar.value") == 42


@check
def load_generator(world):
    """the built-in load: as many clients as one says, each in its lane, until it is stopped"""
    with world.page(world.random, "/#river") as page:
        page.get_by_label("Clients").fill("6")
        page.get_by_role("button", name="Start the load").click()
        expect(page.locator(".summary")).to_contain_text(re.compile(r"([6-9]|\d\d) streams: \d"))
        expect(page.get_by_text(re.compile(r"[1-9]\d* answers, \d+ rejected"))).to_be_visible()
        page.get_by_text("As a table").click()
        expect(page.locator(".lane-table tbody tr").nth(3)).to_be_visible()
        page.locator("canvas.river").click(position={"x": 300, "y": 10})
        expect(page.locator(".facts dd").first).to_be_visible()
        page.get_by_role("link", name="River").click()
        page.get_by_role("button", name="Stop the load").click()
        expect(page.get_by_role("button", name="Start the load")).to_be_visible()


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


# Promise (The web page): each view works without a mouse and passes axe-core, light and dark, on a phone's width.
# Also held by `tools/page/chat_checks.py :: keyboard`.
@check
def accessible(world):
    """axe-core finds nothing in any view, light or dark, wide or on a phone"""
    for scheme, size in [("light", (1200, 800)), ("dark", (390, 844))]:
        viewport = {"width": size[0], "height": size[1]}
        with world.page(world.toy, color_scheme=scheme, viewport=viewport) as page:
            ask(page, "Tell me about rivers.")
            is_done(page)
            passes(page, f"chat {scheme}")
            page.get_by_role("button", name="System & options").click()
            passes(page, f"options {scheme}")
            page.goto(f"{world.toy.url}/#river")
            page.get_by_role("button", name="Break it").click()
            passes(page, f"break it {scheme}")
            page.goto(f"{world.toy.url}/#chat")
            for view in [f"stream/{stored_stream(page)}", "river", "compare", "models", "chat"]:
                page.goto(f"{world.toy.url}/#{view}")
                passes(page, f"{view} {scheme}")
            page.reload()
            expect(page.locator("#tools button").first).to_be_attached()
            page.evaluate("window.dispatchEvent(new CustomEvent('key-needed'))")
            expect(page.get_by_role("dialog")).to_be_visible()
            passes(page, f"key {scheme}")


def passes(page, label):
    """No violations, and nothing that is wider than the screen."""
    page.wait_for_timeout(300)
    found = axe(page)
    assert not found, f"{label}: {found}"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{label} is wider than the screen"


def axe(page):
    """Violations that axe-core finds. Its source is run by the debugger: the policy of the page forbids it as a script."""
    violations = Axe().run(page).response["violations"]
    return [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in violations]
