"""Checks of the chat: what an answer looks like, and what can be done with it."""

import json
import re

from playwright.sync_api import expect

from checks import LONG, answer, ask, check, hold, is_done, scripted, set_options, told


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
def first_screen(world):
    """the document is drawn without a script; the modules are fetched after the first paint; the chosen colors are there at once"""
    with world.page(world.toy) as page:
        expect(page.get_by_role("button", name="Export")).to_be_visible()
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
        times = page.evaluate("""() => ({
            paint: performance.getEntriesByName('first-contentful-paint')[0].startTime,
            modules: performance.getEntriesByType('resource').filter((entry) => entry.name.endsWith('.js')).map((entry) => entry.startTime),
            styles: performance.getEntriesByType('resource').filter((entry) => entry.name.endsWith('.css')).length,
        })""")
        # A page that is not painted for so long begins anyway.
        assert times["styles"] == 0 and min(times["modules"]) >= min(times["paint"], 200), times
        page.get_by_label("Colors").select_option("dark")
        page.route("**/main.js", lambda route: None)
        page.goto(world.toy.url + "/?again")
        expect(page.get_by_placeholder("Write a message")).to_be_visible()
        expect(page.get_by_role("link", name="River")).to_be_visible()
        expect(page.get_by_role("button", name="System & options")).to_be_disabled()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@check
def continued_and_branched(world):
    """stop, continue, regenerate and branch: each version stays, and a branch is a conversation of its own"""
    with world.page(world.random) as page:
        set_options(page, **{"Longest answer": 400, "Temperature": 0})
        hold(page)
        ask(page, LONG)
        expect(page.locator(".message.assistant .measures")).to_contain_text(re.compile(r"[1-9]\d* tokens"), timeout=60_000)
        page.get_by_role("button", name="Stop", exact=True).click()
        is_done(page)
        expect(page.locator(".message.assistant .measures")).to_contain_text("stopped")
        begun = answer(page)
        page.get_by_role("button", name="Continue").click()
        is_done(page)
        whole = answer(page)
        assert whole.startswith(begun.rstrip()) and len(whole) > len(begun), (begun, whole)
        page.get_by_role("button", name="Regenerate").click()
        is_done(page)
        expect(page.locator(".branches")).to_contain_text("2/2")
        page.get_by_role("button", name="Previous version").click()
        assert answer(page) == whole
        page.get_by_role("button", name="Branch").click()
        expect(page.locator("#conversations li")).to_have_count(2)
        expect(page.locator("#conversations .is-here")).to_contain_text("(branch)")
        assert answer(page) == whole
        expect(page.locator(".branches")).to_have_count(0)


TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Tells the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


@check
def tools(world):
    """a tool call shows its arguments as they arrive, and takes its result"""
    with world.page(world.toy) as page:
        page.get_by_role("button", name="System & options").click()
        page.get_by_label("Tools (a list").fill(json.dumps([TOOL]))
        page.get_by_role("button", name="System & options").click()
        hold(page)
        ask(page, "What is the weather in Paris?")
        call = page.locator(".call")
        expect(call.locator(".chip")).to_have_text("arguments arriving", timeout=60_000)
        hold(page)
        is_done(page)
        expect(call.locator(".chip")).to_have_text("arguments complete")
        expect(call).to_contain_text("get_weather")
        assert "city" in json.loads(call.locator("pre").inner_text())
        page.get_by_label("Result of get_weather").fill("sunny, 21 degrees")
        with page.expect_request("**/v1/inference") as request:
            page.get_by_role("button", name="Send result").click()
        sent = request.value.post_data_json["messages"]
        assert [one["role"] for one in sent] == ["user", "assistant", "tool"] and sent[2]["content"] == "sunny, 21 degrees", sent
        is_done(page)
        assert answer(page)


@check
def reasoning(world):
    """reasoning is folded, and says how long it takes, and then how long it took"""
    with world.page(world.toy) as page:
        thoughts = [{"type": "token", "t": text, "kind": "reasoning", "i": at} for at, text in enumerate(["Let me ", "think ", "twice."])]
        said = {"type": "token", "t": "Done.", "i": 3}
        scripted(page, [*thoughts, said, {"type": "end", "tokens_out": 4, "decode_time_ms": 1, "stop_reason": "EOS"}])
        hold(page)
        ask(page, "Think")
        summary = page.locator("details.reasoning summary")
        expect(summary).to_have_text(re.compile("^Thinking… "))
        is_done(page)
        expect(summary).to_have_text(re.compile(r"^Thought for 1\.\d s$"))
        expect(page.locator(".reasoning-text, .reasoning .markdown")).to_be_hidden()
        summary.click()
        expect(page.locator(".reasoning .markdown")).to_have_text("Let me think twice.")
        assert answer(page).endswith("Done.")


@check
def system_prompt_and_sampling(world):
    """the system prompt and the sampling parameters are in the request"""
    with world.page(world.toy) as page:
        set_options(page, **{"System prompt": "Be brief.", "Temperature": 0.25, "Top p": 0.9, "Seed": 7, "Longest answer": 12})
        with page.expect_request("**/v1/inference") as request:
            ask(page, "Tell me about rivers.")
        sent = request.value.post_data_json
        assert sent["messages"][0] == {"role": "system", "content": "Be brief."}, sent
        assert [sent[name] for name in ("temperature", "top_p", "seed", "max_tokens")] == [0.25, 0.9, 7, 12], sent
        is_done(page)
        expect(page.locator(".measures")).to_contain_text("cut off at the token limit")


@check
def code_copied(world):
    """code stands in a block whose button copies it"""
    with world.page(world.toy) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        scripted(page, told(["Look:\n\n```py", "thon\nprint('<b>')\n  x = 1", "\n```\n\nDone."]))
        ask(page, "Code")
        is_done(page)
        block = page.locator(".code-block")
        expect(block).to_contain_text("python")
        block.get_by_role("button", name="Copy").click()
        expect(block.get_by_role("button")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == "print('<b>')\n  x = 1"


# Long enough to come in several frames.
NAMES = [f"animal_{at}" for at in range(12)]
SCHEMA = {"type": "object", "properties": {name: {"enum": ["fox", "otter"]} for name in NAMES}, "required": NAMES}


@check
def schema_and_refusals(world):
    """an answer under a schema says that it is valid so far, and valid at its end; a file that is no text is refused in words"""
    with world.page(world.toy) as page:
        page.get_by_role("button", name="System & options").click()
        page.get_by_label("Answer schema").fill("{")
        expect(page.locator(".verdict.invalid")).to_contain_text("not JSON yet")
        page.get_by_label("Answer schema").fill(json.dumps(SCHEMA))
        expect(page.locator(".verdict.invalid")).to_have_count(0)
        page.get_by_role("button", name="System & options").click()
        hold(page)
        ask(page, "Tell me about a fox.")
        expect(page.locator(".chip.incomplete")).to_have_text("schema: valid so far", timeout=60_000)
        hold(page)
        is_done(page)
        expect(page.locator(".chip.valid")).to_have_text("schema: valid")
        page.locator(".composer").evaluate("""form => {
            const data = new DataTransfer();
            data.items.add(new File(['x'], 'cats.zip', {type: 'application/zip'}));
            form.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));
        }""")
        expect(page.locator(".composer .error")).to_contain_text("cats.zip: files are sent if they are texts or images")


HOSTILE = [
    "<script>window.hacked = 1</script><img src=x onerror=\"window.hacked = 1\">\n\n",
    "[click](javascript:window.hacked=1) ![i](https://example.org/x.png)\n\n",
    "\u202eright to left\u202c \u05e9\u05dc\u05d5\u05dd \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301\n\n",
    "x" * (1 << 20) + "\n\n```html\n<b onclick=\"window.hacked=1\">\n```\n",
    "> " * 3000 + "\n" + "[" * 5000 + "*" * 5000,
]


@check
def hostile_text(world):
    """what a model writes is text: no script, no image, no request, whatever it is"""
    with world.page(world.toy) as page:
        scripted(page, told(HOSTILE))
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
        expect(page.get_by_label("Message", exact=True)).to_be_focused()
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
