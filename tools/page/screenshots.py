"""Pictures of the page for the documentation."""

import contextlib
import io
import json
import time

from PIL import Image
from playwright.sync_api import expect

from checks import break_panel, hold

QUESTION = "Tell me about rivers."
BYTES_MAX = 150_000
# The animated picture: its bytes, its frames, the time of one, and how many of them are before the cut.
ANIMATED_BYTES_MAX = 600_000
FRAMES, FRAME_MS, FRAMES_BEFORE = 48, 300, 12
CLIENTS = 5
# Time under load, in which answers end and others begin.
LOADED_MS = 40_000
# Prepared text: the built-in model writes no markdown.
SHOWN = """Rivers carry water downhill, and with it **everything else**:

| part | what happens |
|---|---|
| upper course | erosion, rapids |
| middle course | meanders |
| delta | sediment settles |

```python
def flow(depth, width, velocity):
    return depth * width * velocity  # m³/s
```

1. A *millrace* takes some of that water,
2. at a controlled rate,
3. to the wheel.
"""


def take_screenshots(world, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, options in [
        ("light", {"color_scheme": "light", "viewport": {"width": 1180, "height": 760}}),
        ("dark", {"color_scheme": "dark", "viewport": {"width": 1180, "height": 760}}),
        ("phone", {"color_scheme": "dark", "viewport": {"width": 390, "height": 800}}),
    ]:
        with world.page(world.toy, **options) as page:
            shown_chat(page)
            save(page, folder / f"chat-{name}.png")
    # Some streams run, the others wait for a slot.
    loaded = world.start_slow("loaded", "--sequences", "9")
    with world.page(loaded, viewport={"width": 1180, "height": 640}, color_scheme="light") as page:
        river(loaded, page)
        save(page, folder / "river.png")
        page.get_by_role("button", name="Stop the load").click()
    loaded.stop()
    world.servers.remove(loaded)
    cut_and_back(world, folder / "cut-and-back.webp")
    with world.page(world.toy, viewport={"width": 1180, "height": 760}, color_scheme="dark") as page:
        stream(world.toy, page)
        save(page, folder / "stream.png")


def shown_chat(page):
    words = SHOWN.split(" ")
    frames = [{"type": "started", "job_id": "x", "model": "example"}]
    frames += [{"type": "token", "t": "The user wants an overview. A table, a formula, a list.", "kind": "reasoning", "i": 0, "n": 12}]
    frames += [{"type": "token", "t": word + " ", "i": at + 12} for at, word in enumerate(words)]
    frames += [{"type": "end", "tokens_out": len(words) + 12, "decode_time_ms": 3900, "stop_reason": "EOS"}]
    body = "".join(f"id: x:{at}\ndata: {json.dumps(frame)}\n\n" for at, frame in enumerate(frames)) + "data: [DONE]\n\n"
    page.route("**/v1/inference", lambda route: route.fulfill(content_type="text/event-stream", body=body, headers={"x-stream-id": "f" * 32}))
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": [{"id": "example"}]}))
    page.reload()
    page.route("**/ack", lambda route: route.fulfill(json={}))
    page.get_by_label("Message", exact=True).fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant")).to_have_attribute("aria-busy", "false")
    page.wait_for_timeout(500)


def river(server, page):
    """Lanes under load: two readers read slowly, one not at all, the others are clients of the load generator."""
    for pace in ["Read 2 tokens/s", "Stop reading", "Read 2 tokens/s"]:
        tab = page.context.new_page()
        tab.goto(server.url)
        tab.get_by_role("button", name="System & options").click()
        tab.get_by_label("Longest answer").fill("3000")
        hold(tab, pace)
        tab.get_by_label("Message", exact=True).fill("Hi")
        tab.keyboard.press("Enter")
        tab.wait_for_timeout(300)
    page.bring_to_front()
    page.goto(f"{server.url}/#river")
    page.get_by_label("Clients").fill("40")
    page.get_by_role("button", name="Start the load").click()
    page.wait_for_timeout(LOADED_MS)


def cut_and_back(world, path):
    """The first lane's client goes offline for five seconds and comes back; the others do not notice."""
    # A stream without a reader soon stands still: the rest of its credit, and nothing beyond it.
    server = world.start_slow("slow", MILLRACE_STREAMS_DETACHED_TOKENS="0")
    with contextlib.ExitStack() as stack:
        # A profile for each: a browser opens six connections to a server.
        clients = [stack.enter_context(world.page(server)) for _ in range(CLIENTS)]
        page = stack.enter_context(world.page(server, "/#river", viewport={"width": 1000, "height": 640}, color_scheme="light"))
        for client in clients:
            client.get_by_role("button", name="System & options").click()
            client.get_by_label("Longest answer").fill("3000")
            client.get_by_label("Message", exact=True).fill("Hi")
            client.keyboard.press("Enter")
            break_panel(client)
        page.wait_for_timeout(12_000)
        frames, times = [], []
        for at in range(FRAMES):
            if at == FRAMES_BEFORE:
                clients[0].get_by_role("button", name="Offline for 5 s").click()
            times.append(time.monotonic())
            frames.append(Image.open(io.BytesIO(page.screenshot(clip=lanes_in_sight(page)))).convert("RGB"))
            page.wait_for_timeout(max(0, FRAME_MS - (time.monotonic() - times[-1]) * 1000))
    save_animated(frames, times, path)


def lanes_in_sight(page):
    """The first lanes, and nothing beside them."""
    box = page.locator(".river-holder").bounding_box()
    return {"x": box["x"], "y": box["y"], "width": box["width"], "height": min(box["height"], CLIENTS * 26 + 1)}


def save_animated(frames, times, path):
    """Writes the frames with the times at which they were taken; the last one stays a while."""
    shown_ms = [round((after - before) * 1000) for before, after in zip(times, times[1:])] + [2000]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=shown_ms, loop=0, lossless=True, method=6, minimize_size=True)
    size = path.stat().st_size
    assert size <= ANIMATED_BYTES_MAX, f"{path.name} has {size} bytes; at most {ANIMATED_BYTES_MAX}"
    print(f"{path}: {size} bytes, {len(frames)} frames, {sum(shown_ms) / 1000:.0f} s")


def stream(server, page):
    """A stream opened: facts, replay, three formats."""
    page.get_by_label("Message", exact=True).fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant")).to_have_attribute("aria-busy", "false")
    page.get_by_role("link", name="Stream").click()
    page.get_by_role("button", name="Read the bytes").click()
    expect(page.locator(".formats section")).to_have_count(3)
    page.wait_for_timeout(1500)
    page.locator(".strip").scroll_into_view_if_needed()
    page.locator(".stream-view").evaluate("view => view.scrollTo(0, 420)")


def save(page, path):
    page.screenshot(path=path)
    size = path.stat().st_size
    assert size <= BYTES_MAX, f"{path.name} has {size} bytes; at most {BYTES_MAX}"
    print(f"{path}: {size} bytes")
