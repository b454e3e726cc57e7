"""Pages of reports: escaping, folded parts, pictures, and tables that a click sorts in the browser."""

from pathlib import Path

import pytest

from contiformer.plots import (
    Bars,
    Entry,
    Figures,
    Findings,
    Fold,
    Heading,
    Picture,
    Sheet,
    Words,
    new_figure,
    page_to_html,
    save,
)

BROWSER = Path("/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
WIDE = Sheet(
    "A table",
    ("model", *(f"column {n}" for n in range(40)), "words"),
    tuple(
        (Entry(name), Entry(f"{value} ±0.1 (3)"), *(Entry("0.5") for _ in range(39)), Entry("word " * 12))
        for name, value in (("b", "10.5"), ("a", "9"), ("<i>c</i>", "-2"), ("d", "-"), ("e", "1,200"))
    ),
    1,
    1,
)


def test_everything_is_escaped():
    evil = '<script>x</script> & "q"'
    blocks = [
        Heading(1, evil),
        Words(evil),
        Findings((evil,)),
        Figures(((evil, evil, evil),)),
        Bars(evil, evil, ((evil, 1.0, evil),)),
        Fold(evil, (Sheet(evil, (evil,), ((Entry(evil, strong=True),),), notes=(evil,)),)),
    ]
    page = page_to_html(blocks)
    assert page.count("<script>") == 1
    assert page.count("&lt;script&gt;x&lt;/script&gt;") >= 12
    assert "://" not in page


def test_figure_as_svg_takes_the_ink_of_the_page(tmp_path):
    pytest.importorskip("matplotlib")
    figure = new_figure(2, 2)
    figure.subplots().set_xlabel("<b>$x$</b>")
    path = save(figure, tmp_path / "a.svg")
    first = path.read_bytes()
    page = page_to_html([Picture(path, "a <caption>")])
    assert "currentColor" in page
    assert "#000000" not in page
    assert "&lt;b&gt;$x$&lt;/b&gt;" in page
    assert "://" not in page
    assert save(figure, path).read_bytes() == first


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api")
    if not BROWSER.exists():
        pytest.skip("there is no chromium here")
    with sync.sync_playwright() as play:
        found = play.chromium.launch(executable_path=str(BROWSER), args=ARGUMENTS)
        yield found
        found.close()


def names(page):
    return page.eval_on_selector_all("tbody tr", "rows => rows.map(row => row.cells[0].innerText)")


def test_click_sorts_the_table(browser, tmp_path):
    (tmp_path / "page.html").write_text(page_to_html([Heading(1, "t"), WIDE]), encoding="utf-8")
    page = browser.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    page.click("th:nth-child(2)")
    assert names(page) == ["<i>c</i>", "a", "b", "e", "d"]
    page.click("th:nth-child(2)")
    assert names(page) == ["e", "b", "a", "<i>c</i>", "d"]
    assert page.get_attribute("th:nth-child(2)", "aria-sort") == "descending"
    page.focus("th:first-child")
    page.keyboard.press("Enter")
    assert names(page) == ["<i>c</i>", "a", "b", "d", "e"]
    assert page.get_attribute("th:nth-child(2)", "aria-sort") is None
    assert len(asked) == 1


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_table_is_wider_than_the_page(browser, tmp_path, width, scheme):
    blocks = [Heading(1, "title"), Fold("more", (WIDE,)), WIDE, Bars("bars", "a", (("a" * 80, 1.0, "1"),))]
    (tmp_path / "page.html").write_text(page_to_html(blocks), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto((tmp_path / "page.html").as_uri())
    page.click("summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.eval_on_selector_all(".sheet", "all => all.map(one => [one.clientWidth, one.scrollWidth])")
    assert all(inner > outer for outer, inner in boxes)
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
