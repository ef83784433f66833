"""How large the report page of ten configurations is, and how long it takes to open in Chromium.

    python benchmarks/report_page.py

Ten configurations on scikit-learn's digits, three seeds, one epoch each: what is on the page does not depend
on how well they were trained. Opening is measured seven times in a new window each, until every figure is
drawn; the text is there at the first paint. Needs Chromium, and about four minutes on two cores.
"""

import json
import shutil
import statistics
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from pluribus.cli import main as cli
from pluribus.report.page import FILE

METHODS = ",".join(
    [
        *("single", "mc_dropout(draws=2)", "mc_dropout(draws=4)", "mc_dropout(draws=4,rate=0.3)"),
        *(f"deep_ensembles(members={members})" for members in (2, 3, 4)),
        *(f"batch_ensemble(members={members})" for members in (2, 3, 4)),
    ]
)
OUT = Path("pluribus_runs/report_page")
RESULT = Path(__file__).parent / "results" / "report_page.json"
OPENINGS = 7
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"


def openings(address: str, width: int) -> dict[str, list[float]]:
    """Seconds until the text is there, and until all figures are drawn, sorted."""
    text, figures = [], []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for _ in range(OPENINGS):
            page = browser.new_page(viewport={"width": width, "height": 900})
            start = time.perf_counter()
            page.goto(address)
            page.wait_for_selector("html[data-ready]")
            figures.append(round(time.perf_counter() - start, 2))
            text.append(round(page.evaluate(PAINT), 2))
            page.close()
        browser.close()
    return {"text": sorted(text), "figures": sorted(figures)}


def main() -> None:
    """Runs the comparison, opens its page, and keeps what was measured."""
    cli.compare(methods=METHODS, epochs=1, out=OUT)
    page = (OUT / FILE).resolve()
    seconds = {str(width): openings(page.as_uri(), width) for width in (1280, 390)}
    result = {
        "command": "python benchmarks/report_page.py",
        "configurations": 10,
        "bytes": page.stat().st_size,
        "seconds_by_width": seconds,
        "median_seconds": {
            width: {name: statistics.median(values) for name, values in found.items()}
            for width, found in seconds.items()
        },
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
