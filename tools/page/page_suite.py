"""The web page in a real browser: chromium, driven by Playwright, against the binary.

    python tools/page/page_suite.py MILLRACE CHROMIUM [CHECK...] [--screenshots FOLDER | --measure]
"""

import pathlib
import sys
import tempfile
import time
import traceback

from playwright.sync_api import sync_playwright

import chat_checks  # noqa: F401
import image_checks  # noqa: F401
import survival_checks  # noqa: F401
import view_checks  # noqa: F401
from checks import CHECKS
from measurements import measure
from screenshots import take_screenshots
from world import ARGS, World


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
