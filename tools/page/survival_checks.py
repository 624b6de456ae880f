"""Checks: the answer goes on where it was, whatever happens, and all who read it read the same."""

# Promise (The web page): an answer continues where it was after a reload, a closed lid, a lost network, a cut socket
# or a killed server; two tabs show one text.

import re
import time

from playwright.sync_api import expect

from checks import LONG, answer, ask, break_panel, check, hold, is_done, is_open, is_text, long_answer, set_options, stored_stream


def begin_again(page):
    """A long answer, then the same once more, read slowly; gives the text that it will have."""
    long_answer(page)
    is_done(page)
    whole = answer(page)
    hold(page)
    page.get_by_role("button", name="Regenerate").click()
    return whole


@check
def reload_in_the_middle(world):
    """F5 in the middle of an answer: it goes on, and the text is that of an answer without a reload"""
    with world.page(world.random) as page:
        whole = begin_again(page)
        page.wait_for_timeout(1500)
        assert is_open(page)
        page.reload()
        is_done(page)
        is_text(page, whole)


@check
def lost_network(world):
    """offline for five seconds and a cut socket: the answer goes on where it was"""
    with world.page(world.random) as page:
        whole = begin_again(page)
        hold(page, "Cut the socket")
        page.wait_for_timeout(1200)
        page.context.set_offline(True)
        page.wait_for_timeout(1500)
        page.context.set_offline(False)
        hold(page, "Offline for 5 s")
        hold(page)
        is_done(page)
        is_text(page, whole)


@check
def closed_lid(world):
    """a closed lid: the page sleeps while the server is started again, and the answer goes on when it wakes"""
    with world.page(world.random) as page:
        whole = begin_again(page)
        page.wait_for_timeout(1200)
        lid = page.context.new_cdp_session(page)
        lid.send("Page.setWebLifecycleState", {"state": "frozen"})
        world.random.kill()
        time.sleep(2)
        world.random.start()
        time.sleep(2)
        lid.send("Page.setWebLifecycleState", {"state": "active"})
        hold(page)
        is_done(page)
        is_text(page, whole)


@check
def restarted_server(world):
    """the server is killed and started again: the answer goes on"""
    with world.page(world.random) as page:
        whole = begin_again(page)
        page.wait_for_timeout(1200)
        world.random.kill()
        page.wait_for_timeout(500)
        world.random.start()
        hold(page)
        is_done(page)
        is_text(page, whole)


@check
def two_tabs(world):
    """two tabs of one conversation have equal text, also where the second comes in the middle"""
    with world.page(world.random) as page:
        whole = begin_again(page)
        page.wait_for_timeout(1200)
        second = page.context.new_page()
        second.goto(page.url)
        is_done(second)
        hold(page)
        is_done(page)
        is_text(page, whole)
        is_text(second, whole)


# Promise (The web page): two browsers that have a stream open see the same text and each other's changes: pause,
# temperature, injected text.
@check
def two_browsers(world):
    """a stream in two other browsers: both see the same text, and what one of them does with it"""
    with world.page(world.random) as page, world.page(world.random) as one, world.page(world.random) as other:
        set_options(page, **{"Longest answer": 3000, "Temperature": 0})
        hold(page)
        ask(page, LONG)
        expect(page.locator(".measures")).to_contain_text("tokens")
        for watcher in (one, other):
            watcher.goto(f"{world.random.url}/#stream/{stored_stream(page)}")
            expect(text_of(watcher)).not_to_be_empty()
        one.get_by_role("button", name="Pause", exact=True).click()
        expect(other.locator(".facts")).to_contain_text("paused")
        other.get_by_role("button", name="Resume", exact=True).click()
        expect(one.locator(".facts")).not_to_contain_text("paused")
        steer(one)
        hold(page)
        for watcher in (one, other):
            expect(text_of(watcher)).to_contain_text("and now XYZZY")
        expect(page.locator(".message-body").last).to_contain_text("and now XYZZY")
        is_done(page)
        for watcher in (one, other):
            expect(watcher.locator(".facts")).to_contain_text("ended")
        page.wait_for_timeout(500)
        assert text_of(one).inner_text() == text_of(other).inner_text()


def text_of(watcher):
    return watcher.locator(".stream-view .markdown").last


def steer(watcher):
    """Another temperature, the end of the reasoning, and a text that is put into the answer."""
    watcher.get_by_label("Temperature").fill("0.3")
    watcher.get_by_role("button", name="Set", exact=True).click()
    status = watcher.locator(".stream-view").get_by_role("status")
    expect(status).to_have_text("Temperature: done")
    with watcher.expect_request("**/control") as request:
        watcher.get_by_role("button", name="End thinking").click()
    assert request.value.post_data_json == {"end_thinking": True}
    watcher.get_by_label("Text put into the answer").fill(" and now XYZZY")
    watcher.get_by_role("button", name="Inject").click()
    expect(status).to_have_text("Inject: done")


# Promise (The web page): a page that stops reading parks its stream and no other, and shows it; a stream of another
# key is 404.
# Also held by `tools/page/survival_checks.py :: break_it`, `tools/page/view_checks.py :: keys`.
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
        hold(page, "Stop reading")
        is_done(page)


@check
def break_it(world):
    """the buttons that break things: the lane beside them shows the parking and the resumption"""
    with world.page(world.random) as page:
        set_options(page, **{"Longest answer": 3000, "Temperature": 0})
        break_panel(page)
        lane = page.locator(".break-lane")
        expect(lane).to_contain_text("No answer of the chat is being generated")
        expect(lane.locator("canvas")).to_be_hidden()
        expect(page.locator(".river-holder")).to_be_hidden()
        page.get_by_role("button", name="Stop reading").click()
        page.get_by_role("link", name="Chat", exact=True).click()
        ask(page, LONG)
        break_panel(page)
        expect(lane).to_contain_text("reader: does not read")
        expect(lane).to_contain_text(re.compile(r"credit [0-4] %"))
        expect(lane).to_contain_text("parked 1×")
        drawn = "canvas => new Set(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data).size"
        assert lane.locator("canvas").evaluate(drawn) > 8, "the lane is drawn"
        before = int(re.search(r"(\d+) tokens", lane.inner_text()).group(1))
        page.wait_for_timeout(1000)
        expect(lane).to_contain_text(f" {before} tokens")
        page.get_by_role("button", name="Offline for 5 s").click()
        expect(page.get_by_text("Offline for five seconds")).to_be_visible()
        expect(lane).not_to_contain_text("does not read")
        expect(page.get_by_text("Offline for five seconds")).to_be_hidden(timeout=10_000)
        page.get_by_role("button", name="Stop reading").click()
        expect(lane).to_contain_text("ended: ", timeout=60_000)
        after = int(re.search(r"(\d+) tokens", lane.inner_text()).group(1))
        assert after > before, (before, after)
        page.get_by_role("link", name="Chat", exact=True).click()
        is_done(page)


@check
def long_answer_from_the_river(world):
    """“Break it” without an answer has no empty canvas, and asks for an answer"""
    with world.page(world.random, "/#river") as page:
        break_panel(page)
        expect(page.locator(".break-lane canvas")).to_be_hidden()
        page.get_by_role("button", name="Ask for a long answer").click()
        # Also an answer that ends before the first look has a lane.
        expect(page.locator(".break-lane canvas")).to_be_visible()
        expect(page.locator(".break-lane")).to_contain_text("tokens")
        page.get_by_role("link", name="Chat", exact=True).click()
        expect(page.locator(".message.user").last).to_contain_text("a long story")
        is_done(page)
