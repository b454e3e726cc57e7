"""The explorer page in a browser."""

import re
import shutil
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright")

import uvicorn
from playwright.sync_api import sync_playwright

from contiformer import Classifier, TrainingOptions
from contiformer.data import Series, SeriesSet
from contiformer.serving import create_app
from contiformer.serving.server import listen
from tests.serving.test_explorer import explored

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
#: Seconds to wait for what should happen at once: a busy machine is slow, and nothing waits longer than it has to.
PATIENCE = 60
HOSTILE = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(2)>'


def hostile(folder):
    """A run whose channels, classes and features are called like scripts, and its series."""
    draw = np.random.default_rng(0)
    series = [
        Series.of(range(4), draw.normal(size=(4, 2)), static=[1.0], label=(HOSTILE, IMAGE)[n % 2], id=f"{IMAGE}{n}")
        for n in range(8)
    ]
    data = SeriesSet(series, channels=[HOSTILE, IMAGE])
    quick = TrainingOptions(max_epochs=1, min_steps=0, verbose=0)
    Classifier(d_model=8, training=quick).fit(data).save(folder)
    return folder, data


@pytest.fixture(scope="module")
def address(runs, models, tmp_path_factory):
    """A server with all models and data."""
    folder, data = hostile(tmp_path_factory.mktemp("hostile") / "hostile")
    shown = explored(models)
    app = create_app([*(runs[name] for name in shown), runs["plain"], folder], data=shown | {"hostile": data})
    bound = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def visit(browser, address):
    """Open the page for a model; whatever the console complains about fails the test."""

    @contextmanager
    def opened(model, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        wrong = []
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda sent: None if sent.url.startswith(address) else wrong.append(sent.url))
        page.goto(f"{address}#model={model}")
        page.wait_for_selector("#answer h2, #answer b")
        yield page
        context.close()
        assert wrong == []

    return opened


def shares(page):
    """The text of the prediction."""
    return page.locator("#answer").inner_text()


def changed(page, before):
    """The text of the prediction, once it is another."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        now = shares(page)
        if now != before:
            return now
        page.wait_for_timeout(25)
    raise AssertionError(f"the prediction stays {before!r}")


def until(page, condition):
    """Wait for a condition in the page; wait_for_function of playwright needs eval, which the page forbids."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        if page.evaluate(condition):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"not {condition}")


def slide(page, share):
    """Move the slider "known until"."""
    page.locator("#until").evaluate("(s, v) => { s.value = v; s.dispatchEvent(new Event('input')); }", str(share))


def first_point(page, place="#channels .plot"):
    """Where the first observation of the first panel is on the screen."""
    return page.evaluate(
        """async (place) => {
          const name = new URLSearchParams(location.hash.slice(1));
          const query = `model=${name.get("model")}&number=${name.get("series")}`;
          const item = await (await fetch(`/explore/item?${query}`)).json();
          const panel = document.querySelector(place);
          const title = panel.closest(".panel").querySelector(".name").textContent;
          const { models } = await (await fetch("/explore/models")).json();
          const channel = models.find((m) => m.name === name.get("model")).channels.findIndex((c) => c.name === title);
          const [row, , v] = item.points.find((p) => p[1] === channel);
          const box = panel.uplot.over.getBoundingClientRect();
          return [box.left + panel.uplot.valToPos(item.times[row], "x"), box.top + panel.uplot.valToPos(v, "y")];
        }""",
        place,
    )


def test_series_are_chosen_searched_and_stepped_through(visit):
    with visit("classes") as page:
        assert page.locator("h1").inner_text() == "p0"
        assert "down" in page.locator("#label").inner_text()
        page.locator(".item").nth(2).click()
        until(page, "document.querySelector('h1').textContent === 'p2'")
        page.locator("#list").focus()
        page.keyboard.press("ArrowDown")
        until(page, "document.querySelector('h1').textContent === 'p3'")
        page.locator("#view").focus()
        page.keyboard.press("k")
        until(page, "document.querySelector('h1').textContent === 'p2'")
        page.fill("#search", "p7")
        until(page, "document.querySelectorAll('.item').length === 1")
        page.fill("#search", "")
        page.select_option("#sort", "surprise")
        until(page, "document.querySelectorAll('.item').length === 9")
        found = [float(x) for x in page.locator(".item b").all_inner_texts()]
        assert found == sorted(found, reverse=True)


def test_the_slider_changes_the_prediction(visit):
    with visit("classes") as page:
        whole = shares(page)
        slide(page, 300)
        part = changed(page, whole)
        assert "known until" in part
        page.keyboard.press("\\")
        assert changed(page, part) == whole
        slide(page, 0)
        until(page, "document.querySelector('#answer').innerText.includes('Nothing')")


def test_observations_are_dragged_added_and_deleted(visit):
    with visit("classes") as page:
        until(page, "new URLSearchParams(location.hash.slice(1)).has('series')")
        before = shares(page)
        x, y = first_point(page)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x, y + 45, steps=4)
        page.mouse.up()
        dragged = changed(page, before)
        assert page.locator("#edits li").count() == 1
        page.keyboard.press("Delete")
        deleted = changed(page, dragged)
        panel = page.locator("#channels .plot .u-over").first
        panel.dblclick(position={"x": 90, "y": 12})
        changed(page, deleted)
        said = page.locator("#edits li").all_inner_texts()
        assert [text.split()[0] for text in said] == ["moved", "deleted", "added"]
        page.click("#reset")
        until(page, "document.querySelector('#edits').hidden")
        for _ in range(100):
            if shares(page) == before:
                break
            page.wait_for_timeout(25)
        assert shares(page) == before
        page.click("#add-mode")
        panel.click(position={"x": 60, "y": 20})
        added = changed(page, before)
        box = panel.bounding_box()
        page.mouse.click(box["x"] + 60, box["y"] + 20, button="right")
        changed(page, added)
        assert page.locator("#edits li").all_inner_texts()[-1].startswith("deleted")


@pytest.mark.parametrize(
    ("model", "place"), [("classes", "#channels .plot"), ("curves", "#channels .plot"), ("orders", "#intensity")]
)
def test_a_stretch_of_time_is_zoomed_into(visit, model, place):
    with visit(model) as page:
        until(page, "new URLSearchParams(location.hash.slice(1)).has('series')")
        ends = f"[document.querySelector('{place}').uplot.scales.x].map((x) => [x.min, x.max])[0]"
        start, end = page.evaluate(ends)
        assert page.locator("#zoom-out").is_disabled()
        box = page.locator(f"{place} .u-over").first.bounding_box()
        page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 2)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 2, steps=3)
        page.mouse.up()
        quarter = (end - start) / 4
        assert page.evaluate(ends) == pytest.approx([start + quarter, end - quarter], abs=0.1 * quarter)
        assert page.locator("#edits li").count() == 0
        if model == "curves":
            first = f"document.querySelector('{place}').uplot.data[0][0] > {start + 0.8 * quarter}"
            until(page, first)
        page.keyboard.press(".")
        assert page.evaluate(ends) == pytest.approx([end - 2 * quarter, end], abs=0.1 * quarter)
        page.click("#zoom-in")
        page.click("#zoom-out")
        assert page.evaluate(ends)[0] > start
        page.keyboard.press("0")
        assert page.evaluate(ends) == [start, end]


def test_an_observation_is_chosen_and_changed_by_keyboard(visit):
    with visit("curves") as page:
        page.locator("#channels .plot").first.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowUp")
        until(page, "document.querySelectorAll('#edits li').length === 1")
        page.keyboard.press("Delete")
        until(page, "document.querySelectorAll('#edits li').length === 2")
        page.keyboard.press("Enter")
        until(page, "document.querySelectorAll('#edits li').length === 3")


def test_layers_are_switched(visit):
    with visit("classes") as page:
        page.select_option("#layer", "attribution")
        page.wait_for_selector("#layer-scale:not([hidden])")
        assert "log-odds" in page.locator("#layer-scale").inner_text()
        page.select_option("#layer", "attention")
        until(page, "document.querySelector('#layer-scale').innerText.includes('attention')")
        page.select_option("#layer", "none")
        page.wait_for_selector("#layer-scale", state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_mode_follows_the_system_and_the_switch(visit, scheme):
    with visit("curves", color_scheme=scheme) as page:
        shown = "getComputedStyle(document.body).backgroundColor"
        first = page.evaluate(shown)
        assert page.locator("html").get_attribute("data-theme") == scheme
        page.click("#theme")
        assert page.evaluate(shown) != first


def test_colours_of_classes_follow_the_switch(visit):
    with visit("classes") as page:
        page.wait_for_selector("#answer .fill")
        shown = "[...document.querySelectorAll('#answer .fill, #label .dot, .item .dot, .legend .dot')]"
        colours = f"{shown}.map((one) => getComputedStyle(one).backgroundColor)"
        before = page.evaluate(colours)
        page.click("#theme")
        assert len(before) > 4
        assert not set(before) & set(page.evaluate(colours))


@pytest.mark.parametrize("model", ["classes", "curves", "orders", "loads", "plain", "hostile"])
def test_a_phone_has_no_horizontal_scroll(visit, model):
    with visit(model, viewport={"width": 360, "height": 740}, has_touch=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        if model != "hostile":
            squeezed = (
                "[...document.querySelectorAll('.panel-title .name')].filter((x) => x.scrollWidth > x.clientWidth + 1)"
            )
            assert page.evaluate(f"{squeezed}.map((x) => x.textContent)") == []
        page.click("#tab-model")
        page.wait_for_selector("#model-page table")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_hostile_names_are_only_text(visit):
    with visit("hostile") as page:
        until(page, "document.querySelector('#channels .name')?.textContent.length > 0")
        names = page.locator("#channels .name").all_inner_texts()
        assert set(names) == {HOSTILE, IMAGE}
        assert page.locator("h1").inner_text() == f"{IMAGE}0"
        page.select_option("#layer", "attribution")
        page.wait_for_selector("#layer-scale:not([hidden])")
        page.click("#tab-model")
        page.wait_for_selector(".confusion")
        assert HOSTILE in page.locator(".confusion").inner_text()
        assert page.locator("img[src=x]").count() == 0
        assert page.locator("main script").count() == 0


def test_events_are_added_moved_and_deleted(visit):
    with visit("orders") as page:
        before = shares(page)
        lanes = page.locator("#lanes .u-over")
        box = lanes.bounding_box()
        lanes.click(position={"x": box["width"] - 15, "y": box["height"] * 0.75})
        added = changed(page, before)
        assert page.locator("#edits li").inner_text().startswith("added sell")
        page.mouse.move(box["x"] + box["width"] - 15, box["y"] + box["height"] * 0.75)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 50, box["y"] + box["height"] * 0.75, steps=3)
        page.mouse.up()
        moved = changed(page, added)
        page.keyboard.press("Delete")
        assert changed(page, moved) == before
        page.select_option("#type", label="buy")
        page.locator("#intensity .u-over").click(position={"x": box["width"] - 15, "y": 30})
        changed(page, before)
        assert page.locator("#edits li").all_inner_texts()[-1].startswith("added buy")


def test_the_confusion_matrix_leads_to_series(visit):
    with visit("classes") as page:
        page.keyboard.press("m")
        page.wait_for_selector(".confusion button:not([disabled])")
        cell = page.locator(".confusion button:not([disabled])").first
        count = int(cell.inner_text())
        cell.click()
        until(page, f"document.querySelectorAll('.item').length === {count}")
        assert page.locator("#cell").is_visible()


def test_an_empty_series_is_drawn_and_a_table_pasted(visit):
    with visit("plain") as page:
        assert "Nothing to go by" in shares(page)
        empty = shares(page)
        page.locator("#channels .plot .u-over").first.dblclick(position={"x": 80, "y": 40})
        changed(page, empty)
        page.click("#paste-open")
        columns = page.locator("#paste-columns").inner_text().split(", ")
        assert columns[:2] == ["id", "time"]
        page.fill("#paste-text", "id,time,channel_0,channel_1\na,0,1,2\na,1,2,1\nb,0,3,1\n")
        page.click("#paste-go")
        until(page, "document.querySelector('h1').textContent === 'a'")
        assert page.locator("#pasted option").all_inner_texts() == ["a", "b"]


def test_an_error_of_the_server_is_shown_with_its_place(browser, address):
    page = browser.new_page()
    page.goto(f"{address}#model=plain")
    page.wait_for_selector("#answer h2")
    page.click("#paste-open")
    page.fill("#paste-text", "id,time,channel_0,channel_1\na,0,1,2\na,1,many,1\n")
    page.click("#paste-go")
    page.wait_for_selector("#paste-error:not([hidden])")
    assert re.search(r"row 3, column 'channel_0'", page.locator("#paste-error").inner_text())
    page.close()


def test_shortcuts_are_listed(visit):
    with visit("classes") as page:
        page.keyboard.press("?")
        assert "search by id" in page.locator("#help").inner_text()
        page.click("#help button")
        until(page, "!document.querySelector('#help').open")
        page.locator("#view").focus()
        page.keyboard.press("/")
        until(page, "document.activeElement.id === 'search'")
