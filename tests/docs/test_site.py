"""The documentation's site: it builds without warnings, its tutorials run, and it loads nothing from elsewhere."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.conftest import SHARED

pytest.importorskip("mkdocs")
pytest.importorskip("markdown_exec")
ROOT = Path(__file__).parents[2]


class _Page(HTMLParser):
    """Links, resources and anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.pictures, self.nameless = 0, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given.get("id"), given.get("name")} - {None}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in ("script", "img", "source", "iframe") and given.get("src"):
            self.loaded.append(given["src"])
        if tag == "img" or (tag == "svg" and given.get("role") == "img"):
            self.pictures += 1
            self.nameless += [] if given.get("alt") or given.get("aria-label") else [given.get("src", "svg")]
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    data = {"CONTIFORMER_DATA": str(SHARED)} if SHARED.is_dir() else {}
    env = {**os.environ, **data, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: _Page(path.read_text()) for path in site.rglob("*.html")}


def test_every_page_of_the_navigation_is_built(site):
    named = re.findall(r": ([\w/-]+)\.md$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    assert len(named) > 30
    assert [name for name in named if not (site / f"{name}.html").is_file()] == []


def test_links_and_resources_exist(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or not (parts.path or parts.fragment) or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages[target].anchors if target in pages else None
            if not target.exists() or (parts.fragment and known is not None and unquote(parts.fragment) not in known):
                broken.append((str(path.relative_to(site)), link))
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(pages):
    assert [link for page in pages.values() for link in page.loaded if urlsplit(link).netloc] == []


def test_pictures_have_alt_texts(pages):
    assert sum(page.pictures for page in pages.values()) > 15
    assert {str(path): page.nameless for path, page in pages.items() if page.nameless} == {}


def test_formulas_are_drawn(site):
    text = (site / "theory" / "attention.html").read_text()
    assert "<math" in text
    assert "arithmatex" not in text


def test_outputs_of_a_tutorial_are_shown(site):
    assert "AUROC 0." in (site / "start" / "first-model.html").read_text()


def test_commands_of_pages_are_run(site):
    assert "wrote answers.csv: 300 rows" in (site / "start" / "first-model.html").read_text()
    assert "mortality/report.html" in (site / "tutorials" / "icu-mortality.html").read_text()
    assert "largest difference from predict" in (site / "tutorials" / "deploying.html").read_text()
    assert "validation loss by epoch: [" in (site / "distributed.html").read_text()


def test_the_clinical_tutorial_uses_real_records_where_they_are(site):
    used = "PhysioNet 2012, set A" if (SHARED / "clinical" / "physionet2012").is_dir() else "a generated clinic"
    text = (site / "tutorials" / "icu-mortality.html").read_text()
    assert re.search(rf"{used}\n[^\n]*shape: \(4, 4\)", text)


def test_figures_and_tables_of_results_are_shown(site):
    for page in ("tutorials/values-at-any-time", "tutorials/forecasting", "howto/explanations", "theory/cost"):
        assert '<figure class="run" markdown="0"><svg role="img"' in (site / f"{page}.html").read_text(), page
    assert (site / "boards.html").read_text().count("<tr>") > 10


def test_the_reference_has_defaults_and_commands_without_markup(site):
    assert "label_smoothing" in (site / "reference" / "estimators.html").read_text()
    text = (site / "reference" / "cli.html").read_text()
    assert "contiformer export" in text
    assert "[bold]" not in text


def test_the_listing_is_included_from_the_source(site):
    source = (ROOT / "src" / "contiformer" / "nn" / "reference.py").read_text()
    names = re.findall(r"^def (\w+)", source, flags=re.MULTILINE)
    text = (site / "theory" / "listing.html").read_text()
    assert [name for name in names if name not in text] == []
    assert "--8" not in text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium here")
@pytest.mark.parametrize("width", [1440, 390])
def test_search_works_without_a_server(site, width):
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_default_timeout(60_000)
        wrong = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfailed", lambda request: wrong.append(request.url))
        page.goto((site / "tutorials" / "deploying.html").as_uri())
        page.locator(".md-search__input" if width > 1000 else "label.md-header__button[for=__search]").click()
        page.keyboard.type("calibration")
        page.locator(".md-search-result__link").first.click()
        page.wait_for_url("**/howto/uncertainty.html*")
        browser.close()
    assert wrong == []
