"""Figures of the page: its first paint over loopback, and the river's frames with a thousand lanes. Nothing fails here.

Run by `cargo xtask page --measure`. The browser renders in software where the machine has no graphics processor.
"""

import os
import pathlib
import statistics

from many_streams import FILES, ManyStreams

LANES = 1000
# The window of the river is thirty seconds: it is full when the measurement begins.
FILL_MS, MEASURED_S = 31_000, 20
PAINTS = 9
FRAME_MS = 1000 / 60

# Notes when each callback of a frame begins, and how long it runs.
WATCH = """
const request = window.requestAnimationFrame.bind(window);
window.frames_ = { begun: [], callbacks: [], tasks: [] };
window.requestAnimationFrame = (act) => request((time) => {
  const begun = performance.now();
  act(time);
  window.frames_.begun.push(begun);
  window.frames_.callbacks.push(performance.now() - begun);
});
new PerformanceObserver((list) => window.frames_.tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ entryTypes: ['longtask'] });
"""
FORGET = "window.frames_ = { begun: [], callbacks: [], tasks: [] }"
PAINT = """
new Promise((resolve) => {
  const paints = () => Object.fromEntries(performance.getEntriesByType('paint').map((entry) => [entry.name, entry.startTime]));
  const wait = () => (paints()['first-contentful-paint'] ? resolve({ ...paints(), response: performance.getEntriesByType('navigation')[0].responseEnd }) : setTimeout(wait, 5));
  wait();
})
"""


def measure(browser, url, files=FILES):
    """Prints both measurements; `url` is that of a running server."""
    print(f"{processor()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; chromium {browser.version}, headless")
    first_paint(browser, url)
    for scale in (1, 2):
        frames(browser, files, scale)


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), "processor unknown")


def first_paint(browser, url):
    """First paint in a new profile, and in one that has the files."""
    for label, is_known in (("a new profile", False), ("files in the browser's cache", True)):
        paints = []
        for _ in range(PAINTS):
            context = browser.new_context(viewport={"width": 1180, "height": 760})
            page = context.new_page()
            if is_known:
                page.goto(url, wait_until="networkidle")
            page.goto(url)
            paints.append(page.evaluate(PAINT))
            context.close()
        row = {name: [paint[name] for paint in paints] for name in ("response", "first-paint", "first-contentful-paint")}
        told = ", ".join(f"{name} {statistics.median(all):.0f} ms ({min(all):.0f} to {max(all):.0f})" for name, all in row.items())
        print(f"{label}, median of {PAINTS}: {told}")


def frames(browser, files, scale):
    """Times from one frame of the river to the next, and of its script in each."""
    world = ManyStreams(LANES, files)
    context = browser.new_context(viewport={"width": 1180, "height": 760}, device_scale_factor=scale)
    try:
        page = context.new_page()
        page.add_init_script(WATCH)
        page.goto(f"{world.url}/#river")
        page.wait_for_timeout(FILL_MS)
        shown = page.locator(".summary").inner_text()
        page.evaluate(FORGET)
        page.wait_for_timeout(MEASURED_S * 1000)
        taken = page.evaluate("window.frames_")
    finally:
        context.close()
        world.stop()
    gaps = [after - before for before, after in zip(taken["begun"], taken["begun"][1:])]
    print(f"river, {shown}; {scale} pixel(s) of the screen in one of the page")
    print(f"  {len(gaps) / MEASURED_S:.1f} frames/s; from frame to frame {quantiles(gaps)}; {sum(gap > 1.5 * FRAME_MS for gap in gaps)} of {len(gaps)} late")
    print(f"  script of a frame {quantiles(taken['callbacks'])}; tasks over 50 ms: {len(taken['tasks'])}")


def quantiles(times):
    times = sorted(times)
    at = lambda part: times[min(len(times) - 1, int(part * len(times)))]
    return f"p50 {at(0.5):.1f} ms, p95 {at(0.95):.1f}, p99 {at(0.99):.1f}, longest {times[-1]:.1f}"
