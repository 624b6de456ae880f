"""Checks of images in the chat: how they come into a message, what of them is sent, and what stays."""

import base64
import http.server
import io
import json
import pathlib
import re
import threading

from PIL import Image, ImageDraw
from playwright.sync_api import expect

from checks import answer, ask, check, is_done, scripted, set_options, told
from view_checks import passes

SEER, BLIND = "seer", "blind"
MODELS = [{"id": SEER, "capabilities": ["completion", "vision"]}, {"id": BLIND, "capabilities": ["completion"]}]
# As in EXIF: the picture lies on its side.
ORIENTATION, TURNED = 0x0112, 6
IMAGES_MAX = 16
EDGE_MAX = 2048
# A small model with its tower next to it.
MINI = pathlib.Path(__file__).parents[2] / "crates/millrace/mini/millrace-mini-vision.gguf"


def picture(kind, size=(8, 6), color=(200, 30, 40), **options):
    """The bytes of a picture."""
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, kind, **options)
    return file.getvalue()


def photo():
    """A large photo that lies on its side: noise, so that its file is large, too."""
    noise = Image.effect_noise((2400, 1600), 90).convert("RGB")
    exif = Image.Exif()
    exif[ORIENTATION] = TURNED
    file = io.BytesIO()
    noise.save(file, "JPEG", quality=95, exif=exif)
    return file.getvalue()


def sees(page, words=("Red.",)):
    """The page has a model with vision and one without it; answers are these words."""
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": MODELS}))
    scripted(page, told(list(words)))
    page.reload()
    expect(page.get_by_label("Model", exact=True)).to_have_value(SEER)


def choose(page, *files):
    """Chooses files, each a name, a type and bytes."""
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Image", exact=True).click()
    chooser.value.set_files([{"name": name, "mimeType": kind, "buffer": data} for name, kind, data in files])


def give(page, event, *files):
    """Drops files on the conversation, or pastes them into the message."""
    page.evaluate("""([event, files]) => {
        const data = new DataTransfer();
        for (const [name, type, base64] of files) {
            data.items.add(new File([Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))], name, {type}));
        }
        const init = {bubbles: true, cancelable: true};
        const [target, made] = event === 'drop'
            ? ['.messages', new DragEvent('drop', {...init, dataTransfer: data})]
            : ['.composer textarea', new ClipboardEvent('paste', {...init, clipboardData: data})];
        document.querySelector(target).dispatchEvent(made);
    }""", [event, [(name, kind, base64.b64encode(data).decode()) for name, kind, data in files]])


def tray(page):
    return page.get_by_role("list", name="Images of the message").get_by_role("img")


def sent(page, text):
    """The messages of the request that a question makes."""
    with page.expect_request("**/v1/inference") as request:
        ask(page, text)
    is_done(page)
    return request.value.post_data_json["messages"]


def image_of(part):
    """Type and bytes of an image in a request."""
    kind, data = re.fullmatch(r"data:([^;]+);base64,(.+)", part["image_url"]["url"]).groups()
    return kind, base64.b64decode(data)


# Promise (The web page): images are pasted, dropped or chosen, drawn upright and at most 2048 pixels long, and sent with the message;
# small files are sent as they are.
@check
def images_sent(world):
    """images that are chosen, dropped and pasted are in the request: a photo upright and smaller, small files as they are"""
    png, gif = picture("PNG"), picture("GIF", color=(0, 90, 200))
    svg = b"<svg xmlns='http://www.w3.org/2000/svg' width='40' height='20'><rect width='40' height='20' fill='red'/></svg>"
    with world.page(world.toy) as page:
        sees(page)
        choose(page, ("photo.jpg", "image/jpeg", photo()), ("drawn.svg", "image/svg+xml", svg))
        expect(tray(page)).to_have_count(2)
        give(page, "drop", ("square.png", "image/png", png))
        expect(tray(page)).to_have_count(3)
        give(page, "paste", ("pasted.gif", "image/gif", gif))
        expect(tray(page)).to_have_count(4)
        question, = sent(page, "Which colors?")
        *images, text = question["content"]
        assert text == {"type": "text", "text": "Which colors?"} and len(images) == 4, [part["type"] for part in images]
        names = page.locator(".message.user img").evaluate_all("all => all.map((one) => one.alt)")
        assert names == ["photo.jpg", "drawn.svg", "square.png", "pasted.gif"], f"not in their order: {names}"
        found = dict(zip(names, map(image_of, images)))
        kind, data = found["photo.jpg"]
        size = Image.open(io.BytesIO(data)).size
        assert kind == "image/webp" and size == (round(1600 * EDGE_MAX / 2400), EDGE_MAX), (kind, size)
        kind, data = found["drawn.svg"]
        assert kind == "image/webp" and Image.open(io.BytesIO(data)).size == (40, 20), kind
        assert found["square.png"] == ("image/png", png) and found["pasted.gif"] == ("image/gif", gif)
        expect(tray(page)).to_have_count(0)
        pictures = page.locator(".message.user img")
        assert pictures.evaluate_all("all => all.every((one) => one.complete && one.naturalWidth > 0 && one.src.startsWith('blob:'))")
        again = sent(page, "And now?")
        assert again[0] == question and again[2] == {"role": "user", "content": "And now?"}, "the images stay in the conversation"


# Promise (The web page): images are never stored: after a reload a placeholder stands for each, and requests say that it is gone.
@check
def images_not_kept(world):
    """after a reload a placeholder says that an image is not kept, the request has a note, and nothing of the bytes is stored"""
    png = picture("PNG")
    with world.page(world.toy) as page:
        sees(page)
        choose(page, ("square.png", "image/png", png))
        sent(page, "Which color?")
        page.reload()
        expect(page.locator(".message.user")).to_contain_text("square.png: images are not kept; this one is not sent again")
        expect(page.locator(".message img")).to_have_count(0)
        first, *_ = sent(page, "Really?")
        assert first["content"][0]["type"] == "text" and "no longer available" in first["content"][0]["text"], first
        stored = page.evaluate("""async () => {
            const opened = await new Promise((resolve) => { const opening = indexedDB.open('millrace'); opening.onsuccess = () => resolve(opening.result); });
            const all = opened.transaction('conversations').objectStore('conversations').getAll();
            await new Promise((resolve) => { all.onsuccess = resolve; });
            return JSON.stringify([all.result, {...localStorage}, {...sessionStorage}]);
        }""")
        assert "square.png" in stored and base64.b64encode(png).decode()[:40] not in stored and "base64" not in stored, stored[:400]
        give(page, "paste", ("the same.png", "image/png", png))
        expect(page.locator(".message.user img")).to_have_count(0)
        page.get_by_role("button", name="Edit").first.click()
        page.get_by_role("button", name="Remove square.png").click()
        page.get_by_role("button", name="Send as a new branch").click()
        is_done(page)
        expect(page.locator(".message.user .image")).to_have_count(0)


@check
def images_refused(world):
    """a model without vision, a broken file, too many images and the server's refusal are explained in words"""
    png = ("square.png", "image/png", picture("PNG"))
    with world.page(world.toy) as page:
        sees(page)
        button = page.get_by_role("button", name="Image", exact=True)
        complaint = page.locator(".composer .error")
        give(page, "drop", ("broken.png", "image/png", b"\x89PNG\r\n\x1a\n"))
        expect(complaint).to_contain_text("broken.png: this browser cannot open it as an image")
        choose(page, png)
        expect(tray(page)).to_have_count(1)
        page.get_by_label("Model", exact=True).select_option(BLIND)
        expect(button).to_be_disabled()
        refusal = f"{BLIND} reads text only; models with vision here: {SEER}"
        expect(button).to_have_attribute("title", refusal)
        for act in [lambda: ask(page, "Which color?"), lambda: give(page, "drop", png), lambda: button.press("Enter")]:
            page.get_by_label("Message", exact=True).fill("")
            act()
            expect(complaint).to_have_text(refusal)
        expect(page.locator(".message")).to_have_count(0)
        page.get_by_label("Model", exact=True).select_option(SEER)
        many = [(f"{at}.png", "image/png", picture("PNG", color=(at, 0, 0))) for at in range(IMAGES_MAX)]
        choose(page, *many)
        expect(tray(page)).to_have_count(IMAGES_MAX)
        expect(complaint).to_contain_text(f"a request has at most {IMAGES_MAX} images")
        error = {"error": {"code": "invalid_request", "message": "messages[0].content[3].image_url: cannot be decoded as PNG"}}
        page.route("**/v1/inference", lambda route: route.fulfill(status=400, json=error))
        ask(page, "Which color?")
        expect(page.locator(".message.assistant .error")).to_contain_text(error["error"]["message"])


@check
def images_accessible(world):
    """images have names, are removed with the keyboard, and pass axe-core in the tray, in the conversation and as placeholders"""
    for scheme, size in [("light", (1200, 800)), ("dark", (390, 844))]:
        with world.page(world.toy, color_scheme=scheme, viewport={"width": size[0], "height": size[1]}) as page:
            sees(page)
            colors = {"red.png": (200, 0, 0), "green.png": (0, 160, 0), "blue.png": (0, 0, 200)}
            choose(page, *[(name, "image/png", picture("PNG", (900, 300), color)) for name, color in colors.items()])
            expect(tray(page)).to_have_count(3)
            passes(page, f"tray {scheme}")
            last = tray(page).last.get_attribute("alt")
            page.get_by_role("button", name=f"Remove {last}").press("Enter")
            expect(tray(page)).to_have_count(2)
            focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
            assert focused == f"Remove {tray(page).last.get_attribute('alt')}", focused
            expect(page.locator("#announcements")).to_have_text(f"{last} was removed")
            for _ in range(2):
                page.keyboard.press("Enter")
            expect(page.get_by_label("Message", exact=True)).to_be_focused()
            choose(page, ("red.png", "image/png", picture("PNG", (900, 300))))
            expect(tray(page)).to_have_count(1)
            # A message may be an image alone.
            page.get_by_label("Message", exact=True).press("Enter")
            is_done(page)
            expect(page.get_by_role("img", name="red.png")).to_be_visible()
            passes(page, f"image {scheme}")
            page.reload()
            expect(page.locator(".message.user .chip")).to_be_visible()
            passes(page, f"placeholder {scheme}")


def square(color):
    """A square in the middle of a white picture."""
    drawn = Image.new("RGB", (64, 64), (255, 255, 255))
    ImageDraw.Draw(drawn).rectangle((16, 16, 47, 47), fill=color)
    file = io.BytesIO()
    drawn.save(file, "PNG")
    return file.getvalue()


@check
def images_answered(world):
    """a server whose model has vision takes the images of the page, in each turn, sees them, and its refusal of one stands at the answer"""
    if not MINI.is_file():
        print(f"      images_answered is skipped: there is no {MINI.name}")
        return
    server = world.start_seeing(MINI)
    with world.page(server) as page:
        expect(page.get_by_role("button", name="Image", exact=True)).to_be_enabled()
        set_options(page, **{"Temperature": 0, "Longest answer": 24})
        choose(page, ("red.png", "image/png", square((255, 0, 0))))
        expect(tray(page)).to_have_count(1)
        sent(page, "What color is the square?")
        expect(page.locator(".message.assistant .error")).to_have_count(0)
        seen = answer(page)
        assert "red" in seen.lower(), seen
        page.get_by_role("button", name="New chat").click()
        choose(page, ("blue.png", "image/png", square((0, 0, 255))))
        expect(tray(page)).to_have_count(1)
        sent(page, "What color is the square?")
        assert "blue" in answer(page).lower(), answer(page)
        again = sent(page, "What color is the square?")
        assert [type(one["content"]).__name__ for one in again] == ["list", "str", "str"], again
        expect(page.locator(".message.assistant .error")).to_have_count(0)
        page.get_by_role("button", name="New chat").click()
        choose(page, ("strip.png", "image/png", picture("PNG", (1000, 2))))
        expect(tray(page)).to_have_count(1)
        sent(page, "What is this?")
        expect(page.locator(".message.assistant .error")).to_contain_text("messages[0].content[0]")


class Seer(http.server.ThreadingHTTPServer):
    """A server with chat completions that describes an image as soon as the check says so."""

    def __init__(self):
        self.may_answer = threading.Semaphore(0)
        super().__init__(("127.0.0.1", 0), SeerRequest)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class SeerRequest(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        if not self.server.may_answer.acquire(timeout=30):
            return
        choice = {"message": {"content": "a square"}, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


# Promise (The web page): while another model describes the images of a question, the page says which one.
@check
def images_described(world):
    """a model that reads text only has its images described by another one: the page says which image is being described, then the answer comes"""
    seer = Seer()
    with world.page(world.start_described(seer.address)) as page:
        set_options(page, **{"Temperature": 0, "Longest answer": 8})
        choose(page, *[(f"{color}.png", "image/png", square(color)) for color in ("red", "blue")])
        expect(tray(page)).to_have_count(2)
        ask(page, "What color is the square?")
        waiting = page.locator(".message.assistant .waiting")
        for number in (1, 2):
            expect(waiting).to_contain_text(f"Describing image {number} of 2…")
            passes(page, f"describing {number}")
            seer.may_answer.release()
        is_done(page)
        expect(page.locator(".message.assistant .error")).to_have_count(0)
        assert answer(page).strip(), "there is an answer"
    seer.shutdown()
