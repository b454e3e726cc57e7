"""The page, the tables for documents, and what they say about cells that are not there."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from contiformer.data import DataError
from contiformer.plots import Entry, Sheet, Words, page_to_html, sheet_to_html
from reproduction import report
from reproduction.document import fill_markers, sheet_to_markdown, split_sheet
from reproduction.experiments import Cell
from reproduction.paper import Printed, printed
from reproduction.results import Results
from reproduction.store import Store
from reproduction.tables import main_sheets, selection_sheet
from reproduction.uea import EXPERIMENT as UEA
from reproduction.uea import minirocket_sheets
from tests.reproduction import toy

PNG = b"\x89PNG\r\n\x1a\n not much of a picture"


class _Page(HTMLParser):
    """Checks that what is opened is closed, in order."""

    VOID = ("meta", "img", "br")

    def __init__(self):
        super().__init__()
        self.open, self.tables, self.text = [], 0, ""

    def handle_starttag(self, tag, attrs):
        self.tables += tag == "table"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def _parsed(text):
    page = _Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def _write(store):
    return report.write_report(report.read_chapters(store), store.folder)


@pytest.fixture
def store(tmp_path, monkeypatch, only_toy):
    """North is finished under both protocols but for one model, south is not run, gone has no data."""
    store = Store(tmp_path / "reproduction" / "results")
    for protocol in ("honest", "paper"):
        for cell in toy.grid(protocol):
            if cell.data == "north" and cell.setting == "drop30" and not cell.model.startswith("broken"):
                figures = {"accuracy": 0.5 + 0.125 * (cell.model == "ours") + 0.25 * (protocol == "paper")}
                figures |= {"last_accuracy": 0.5} if protocol == "paper" else {}
                store.write(cell, toy.row(cell, **figures))
    said = {("north", "ours"): Printed(0.75, None)}
    monkeypatch.setattr(
        "reproduction.results.printed",
        lambda table, data, setting, model, metric: said.get((data, model)),
    )
    return store


def test_what_is_not_there_is_said(store):
    _write(store)
    text = (store.folder / "report.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("| north"))
    assert [field.strip() for field in line.strip("|").split("|")] == [
        "north",
        "drop30",
        "**0.6250 ±0.0000 (2)**<br>paper 0.7500",
        "0.5000 ±0.0000 (2)",
        "not run",
        "best<br>below the paper by 0.1250",
    ]
    assert "Not run: north (drop50), south." in text
    assert "No data here: gone." in text
    assert "abacus, 1 thread" in text
    assert "commit abc; 2026-01-02" in text


def test_the_page_is_sound_html_and_whole_in_itself(store):
    (store.folder / "figures").mkdir()
    (store.folder / "figures" / "toy-curves.png").write_bytes(PNG)
    (store.folder / "figures" / "stray.png").write_bytes(PNG)
    _write(store)
    text = (store.folder / "report.html").read_text()
    page = _parsed(text)
    assert page.tables >= 5
    assert "A toy <of> its kind" in page.text
    assert text.count("data:image/png;base64,") == 2
    assert not re.search(r'src="(?!data:)', text)
    markdown = (store.folder / "report.md").read_text()
    assert "(figures/toy-curves.png)" in markdown
    assert "## Other figures" in markdown


def test_findings_come_first_one_table_is_open_and_commits_come_last(store):
    _write(store)
    text = (store.folder / "report.html").read_text()
    assert "://" not in text
    shown = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    assert shown.count("<table") == 1
    finding = "toy:</b> best accuracy in 1 of 1 data sets and settings; at the paper's number or better in 0 of 1."
    assert 0 < shown.index("Findings") < shown.index("Reproduces") < shown.index(finding.replace("'", "&#x27;"))
    assert shown.index(finding.replace("'", "&#x27;")) < shown.index("<table")
    assert text.index("commit abc") > text.rindex("honest protocol: 4 of")
    folded = re.findall(r"<summary>(.*?)</summary>", text)
    assert "More tables, paper protocol (2)" in folded
    assert folded[-1] == "Machines, versions, commits and dates of the results"
    markdown = (store.folder / "report.md").read_text()
    assert markdown.count("<details>") == markdown.count("</details>") == len(folded)


def test_code_in_a_sentence_is_code_on_the_page():
    page = page_to_html([Words("Run `make <demo>` & see")])
    assert "<p>Run <code>make &lt;demo&gt;</code> &amp; see</p>" in page


def test_writing_twice_changes_nothing(store):
    written = _write(store)
    first = {path: path.read_bytes() for path in written}
    assert {path: path.read_bytes() for path in _write(store)} == first


def test_a_report_on_nothing(tmp_path, only_toy):
    store = Store(tmp_path)
    _write(store)
    text = (tmp_path / "report.md").read_text()
    assert "| honest | 0 | 0 | 24 | 36 | 0.0 | not begun |" in text
    assert not re.search(r"0\.\d{4}", text)
    _parsed((tmp_path / "report.html").read_text())


def test_critical_differences_are_drawn_where_there_are_enough_sets_and_a_model_of_ours(
    tmp_path, monkeypatch, only_toy
):
    pytest.importorskip("matplotlib")
    store = Store(tmp_path)
    for order, cell in enumerate(toy.grid("honest")):
        store.write(cell, toy.row(cell, accuracy=0.5 + order / 100))
    written = [path.name for path in _write(store)]
    assert "toy-honest-critical-difference.png" in written
    assert "(figures/toy-honest-critical-difference.png)" in (tmp_path / "report.md").read_text()
    monkeypatch.setattr(toy, "EXPERIMENT", replace(toy.EXPERIMENT, ours=""))
    assert "toy-honest-critical-difference.png" not in [path.name for path in _write(store)]


def test_figures_are_drawn_from_their_cells(store, monkeypatch):
    def draw(rows, path):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(PNG + str(len(rows)).encode())
        return path

    drawn = replace(toy.EXPERIMENT, draw=draw, protocols=("honest",))
    monkeypatch.setattr(toy, "EXPERIMENT", drawn)
    assert store.folder / "figures" / "toy.png" in _write(store)
    assert (store.folder / "figures" / "toy.png").read_bytes() == PNG + b"4"
    assert "(figures/toy.png)" in (store.folder / "report.md").read_text()

    def no_matplotlib(rows, path):
        raise ModuleNotFoundError("pictures need matplotlib")

    monkeypatch.setattr(toy, "EXPERIMENT", replace(drawn, draw=no_matplotlib))
    _write(store)
    assert "Pictures are not drawn anew: pictures need matplotlib." in (store.folder / "report.md").read_text()


def test_costs_are_shown_by_model(tmp_path):
    efficiency = pytest.importorskip("reproduction.efficiency").EXPERIMENT
    store = Store(tmp_path)
    of_set, of_lengths = efficiency.grid("honest")[0], efficiency.grid("honest")[-1]
    row = toy.row(of_set, contiformer_time=0.5, contiformer_ms=12.0, s5_time=1.0)
    store.write(of_set, row | {"configuration": {"models": ["contiformer", "s5", "tst"]}})
    store.write(of_lengths, toy.row(of_lengths, spectral_ms_30=1.5, spectral_ms_60=2.5, pairwise_ms_30=40.0))
    models, lengths = main_sheets(Results.read(efficiency, "honest", store))
    paper = printed("efficiency", of_set.data, "drop0", "contiformer step 0.1", "time").value
    line = next(line for line in models.lines if line[0].text == of_set.data)
    assert line[1].text == f"0.50\npaper {paper:.2f}\n12 ms"
    assert [line[3].text for line in models.lines].count("-") == 1
    assert [line[0].text for line in lengths.lines] == ["30", "60"]
    assert [line[lengths.columns.index("pairwise, ms")].text for line in lengths.lines] == ["40", "-"]
    assert models.notes == lengths.notes == ()
    store.write(of_set, row | {"configuration": {"models": ["s5"]}, "details": {"busy": True}})
    models, lengths = main_sheets(Results.read(efficiency, "honest", store))
    assert models.notes == (f"The machine was busy with other work at {of_set.data}: its times mean little.",)
    assert lengths.notes == ()


def test_the_worth_of_choosing_by_the_test_epoch(store):
    honest, paper = (Results.read(toy.EXPERIMENT, protocol, store) for protocol in ("honest", "paper"))
    lines = {line[0].text: [entry.text for entry in line[1:]] for line in selection_sheet(honest, paper).lines}
    assert lines["ours"] == ["2", "0.8750", "0.5000", "+0.3750", "2", "0.8750", "0.6250", "+0.2500"]
    assert lines["all"] == ["4", "0.8125", "0.5000", "+0.3125", "4", "0.8125", "0.5625", "+0.2500"]
    assert "broken, rival" not in lines
    nothing = Results(toy.EXPERIMENT, "paper", tuple(toy.grid("paper")), {})
    assert selection_sheet(honest, nothing) is None


def test_a_lower_error_is_a_gain(store):
    errors = replace(toy.EXPERIMENT, metrics=(replace(toy.ACCURACY, better="min"),))
    honest, paper = (Results.read(errors, protocol, store) for protocol in ("honest", "paper"))
    line = next(line for line in selection_sheet(honest, paper).lines if line[0].text == "ours")
    assert [line[4].text, line[8].text] == ["-0.3750", "-0.2500"]


def test_figures_of_other_tables_have_no_numbers_of_their_own(store, monkeypatch):
    monkeypatch.setattr(toy, "EXPERIMENT", replace(toy.EXPERIMENT, metrics=(), ours=""))
    names = [path.name for path in _write(store)]
    assert names == ["report.md", "report.html"]
    assert "| toy | honest | " not in (store.folder / "report.md").read_text()


def test_the_discussion_is_linked_where_it_lies(store):
    _write(store)
    assert "Discussion" not in (store.folder / "report.md").read_text()
    discussion = store.folder.parent.parent / "docs" / "reproduction.md"
    discussion.parent.mkdir()
    discussion.write_text("# Why")
    _write(store)
    assert "[docs/reproduction.md](../../docs/reproduction.md)" in (store.folder / "report.md").read_text()


def test_minirocket_stands_beside_ours_over_the_same_cells(tmp_path):
    store = Store(tmp_path)
    for seed, value in enumerate((0.8, 0.9)):
        cell = Cell("uea", "RacketSports", "drop30", "contiformer", seed)
        store.write(cell, toy.row(cell, accuracy=value) | {"version": UEA.version})
    cell = Cell("uea", "Heartbeat", "drop30", "contiformer", 0)
    store.write(cell, toy.row(cell, accuracy=0.1) | {"version": UEA.version})
    (sheet,) = minirocket_sheets(Results.read(UEA, "honest", store))
    texts = [[entry.text for entry in line] for line in sheet.lines]
    assert texts[0] == ["RacketSports", "drop30", "0.8500 (2)", "0.8640", "-0.0140", "0.8487"]
    assert texts[1] == ["mean", "1 cells", "0.8500", "0.8640", "-0.0140", "0.8487"]
    assert minirocket_sheets(Results(UEA, "honest", (), {})) == []


def test_markers_are_filled_again_and_again():
    text = "before\n<!-- table: a -->\nold\n<!-- end -->\nbetween <!-- table: b --><!-- end --> after\n"
    tables = {"a": "| new |", "b": "| 2 |"}
    once = fill_markers(text, tables)
    assert "old" not in once
    assert once.startswith("before\n<!-- table: a -->\n\n| new |\n\n<!-- end -->\nbetween ")
    assert once.endswith("| 2 |\n\n<!-- end --> after\n")
    assert fill_markers(once, tables) == once
    assert fill_markers("nothing to do", tables) == "nothing to do"


def test_markers_that_cannot_be_filled():
    with pytest.raises(ValueError, match=r"no table 'ueaa'.*did you mean 'uea'"):
        fill_markers("<!-- table: ueaa --><!-- end -->", {"uea": ""})
    for text in ("<!-- table: a --> text", "<!-- table: a --> <!-- table: a --> <!-- end -->"):
        with pytest.raises(ValueError, match="has no <!-- end -->"):
            fill_markers(text, {"a": ""})


def test_documents_take_their_tables_from_the_results(store, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- table: toy --><!-- end --> <!-- table: toy-tests --><!-- end -->")
    assert report.fill_files(report.read_chapters(store), [page]) == [page]
    text = page.read_text()
    assert "| north | drop30 | **0.6250 ±0.0000 (2)**<br>paper 0.7500 |" in text
    assert "Too little has been run for this table yet." in text
    assert report.fill_files(report.read_chapters(store), [page]) == []
    page.write_text("<!-- table: toys --><!-- end -->")
    with pytest.raises(DataError, match=r"page\.md: there is no table 'toys'"):
        report.fill_files(report.read_chapters(store), [page])
    assert page.read_text() == "<!-- table: toys --><!-- end -->"


def test_too_few_results_for_a_table_are_not_none_at_all(store):
    tables = report.marked_tables(report.read_chapters(store))
    assert tables["toy-averages"] == "Too little has been run for this table yet."
    assert report.marked_tables(report.read_chapters(Store(store.folder / "new")))["toy-averages"] == "Not run yet."


def test_hours_are_counted_where_the_training_was():
    cell = Cell("toy", "north", "drop30", "ours", 0)
    rows = [toy.row(cell) | {"seconds": 5400.0}, toy.row(cell) | {"seconds": 900.0}]
    assert report.hours(rows) == 1.75
    assert report.hours([*rows, toy.row(cell) | {"taken_from": "other"}]) == 1.75


def test_sheets_escape_what_would_break_them():
    sheet = Sheet("a < b", ("x", "y"), ((Entry("p|q"), Entry("<i>&\nsmall", strong=True)),), notes=("n > 1",))
    assert "| p\\|q | **<i>&**<br>small |" in sheet_to_markdown(sheet)
    page = _parsed(sheet_to_html(sheet))
    assert "<i>&" in page.text
    assert "p|q" in page.text


def test_a_wide_sheet_is_cut_into_parts_that_fit():
    line = (Entry("name"), *(Entry("0123456789") for _ in range(7)), Entry("words"))
    sheet = Sheet("t", ("data", *(f"model{n}" for n in range(7)), "verdict"), (line,), 1, 1)
    parts = split_sheet(sheet, 50)
    assert [head for part in parts for head in part.columns[1:]] == list(sheet.columns[1:])
    assert all(part.columns[0] == "data" for part in parts)
    assert [part.words for part in parts] == [0] * (len(parts) - 1) + [1]
    assert split_sheet(sheet, 500) == [sheet]
