"""The search of the site where no worker may start: a page that is opened from a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from verification.harness.chromium import Chromium, chromium
from verification.harness.processes import ROOT
from verification.pictures.camera import Camera

pytestmark = [pytest.mark.jvm, pytest.mark.skipif(chromium() is None, reason="no chromium: tools/chromium/bring .parts/chromium")]

SHIM = ROOT / "docs/javascripts/iframe-worker.js"
PAGE = """<!doctype html><link rel="icon" href="data:,"><p>no answer</p>
<script src="iframe-worker.js"></script>
<script>
  addEventListener("load", () => {
    const worker = new Worker("worker.js");
    worker.addEventListener("message", (event) => { document.querySelector("p").textContent = event.data; });
    worker.postMessage("water");
  });
</script>"""
WORKER = """
self.addEventListener("message", async (event) => {
  await importScripts(document.querySelector("script[src]").src.replace("worker.js", "words.js"));
  postMessage(event.data + ending);
});
"""


def test_a_worker_answers_in_a_page_from_a_directory(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "worker.js").write_text(WORKER)
    (tmp_path / "words.js").write_text('var ending = "mark";')
    (tmp_path / "iframe-worker.js").write_text(SHIM.read_text(encoding="utf-8"))
    with Chromium() as browser:
        camera = Camera(browser, tmp_path / "pictures")
        camera.open((tmp_path / "index.html").as_uri())
        browser.wait_for("document.querySelector('p').textContent !== 'no answer'")
        assert browser.run("document.querySelector('p').textContent") == "watermark"
        camera.check()
