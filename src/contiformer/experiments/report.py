"""One page with all tables and figures, and the same tables for other documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from contiformer.data.errors import DataError
from contiformer.data.readers.text import read_text, write_text
from contiformer.experiments import catalogue
from contiformer.experiments.cell import Protocol
from contiformer.experiments.experiment import Experiment
from contiformer.experiments.minirocket import minirocket_sheet
from contiformer.experiments.provenance import provenance
from contiformer.experiments.results import Results
from contiformer.experiments.selection import selection_sheet
from contiformer.experiments.standings import average_sheets, rival_sheets, t_test_sheets, verdict_counts
from contiformer.experiments.store import Store
from contiformer.experiments.summary import critical_difference
from contiformer.experiments.tables import main_sheets, to_csv
from contiformer.reports import page, sheet
from contiformer.reports.critical_difference import draw_critical_difference
from contiformer.reports.markers import fill_markers
from contiformer.reports.page import Block, Heading, Picture, Words
from contiformer.reports.sheet import Entry, Sheet

#: From the folder of the report, where that is the one in the repository.
DISCUSSION = "../docs/reproduction.md"
_TITLE = "The paper's tables and figures, and ours"
_INTRODUCTION = (
    "Written by `contiformer reproduce report` from the files of single trainings in cells/. Every number is the mean "
    "over the repeats in brackets, with their standard deviation; the paper's number stands below it.",
    "Honest protocol: the model is chosen by a part of the training data, the test data are read once. Paper protocol: "
    "the epoch with the best test figure, as the authors' code does. The paper's numbers are of that kind, whatever "
    "stands beside them.",
    "Bold: the best of its line. A cell that was not run, or whose data are not here, says so.",
)
_QUICK = "Quick trainings, which show that everything runs; their numbers mean little."


@dataclass(frozen=True)
class Chapter:
    """An experiment with its results under each protocol."""

    experiment: Experiment
    results: dict[Protocol, Results]

    @property
    def begun(self) -> list[Results]:
        """Under protocols that have results."""
        return [results for results in self.results.values() if results.rows]

    @property
    def selection(self) -> Sheet | None:
        """What choosing by the test epoch is worth, where both protocols were run."""
        if len(self.results) < 2 or not self.experiment.metrics:
            return None
        return selection_sheet(self.results["honest"], self.results["paper"])


def read_chapters(store: Store) -> list[Chapter]:
    """All experiments, in the order of the report."""
    experiments = map(catalogue.get, catalogue.MODULES)
    return [Chapter(one, {p: Results.read(one, p, store) for p in one.protocols}) for one in experiments]


def gone_data(chapters: Sequence[Chapter]) -> list[str]:
    """Data sets that cells were run on and that are not here: the page then says "no data" where cells are missing."""
    rows = ((one.experiment, cell) for chapter in chapters for one in chapter.begun for cell in one.rows)
    return list(dict.fromkeys(cell.data for experiment, cell in rows if experiment.absent(cell)))


def write_report(chapters: Sequence[Chapter], folder: Path, *, quick: bool = False) -> list[Path]:
    """Write ``report.md``, ``report.html``, ``tables/*.csv`` and the critical-difference plots into the folder.

    Pictures that others have put into ``figures/`` are shown with the experiment whose name theirs begins with.

    Returns:
        The files that were written.
    """
    written: list[Path] = []
    undrawn = None
    for results in (results for chapter in chapters for results in chapter.begun):
        if results.experiment.metrics:
            name = f"{results.experiment.name}-{results.protocol}.csv"
            written.append(_write(folder / "tables" / name, to_csv(results)))
        try:
            written += _draw(results, folder / "figures")
        except ModuleNotFoundError as error:
            undrawn = f"Pictures are not drawn anew: {error}."
    blocks = list(_blocks(chapters, folder, [*([_QUICK] if quick else []), *([undrawn] if undrawn else [])]))
    written.append(_write(folder / "report.md", page.to_markdown(blocks, folder)))
    return [*written, _write(folder / "report.html", page.to_html(blocks))]


def marked_tables(chapters: Sequence[Chapter]) -> dict[str, str]:
    """The Markdown of every table, by the name that a marker in a document gives it.

    For an experiment ``uea`` there are ``uea`` (all of it), ``uea-averages``, ``uea-rivals`` and ``uea-tests``, the
    same with ``-paper`` behind ``uea`` for the other protocol, ``uea-selection`` and ``uea-minirocket``; ``state`` and
    ``verdicts`` are over all experiments.
    """
    found = {"state": [_state_sheet(chapters)], "verdicts": [_verdict_sheet(chapters)]}
    begun = set()
    for chapter in chapters:
        name = chapter.experiment.name
        for protocol, results in chapter.results.items():
            key = name if protocol == "honest" else f"{name}-{protocol}"
            found[key] = main_sheets(results)
            found[f"{key}-averages"] = average_sheets(results)
            found[f"{key}-rivals"] = rival_sheets(results)
            found[f"{key}-tests"] = t_test_sheets(results)
            found[f"{key}-minirocket"] = [one for one in [minirocket_sheet(results)] if one]
            if results.rows:
                begun |= {key, *(f"{key}-{part}" for part in ("averages", "rivals", "tests", "minirocket"))}
        found[f"{name}-selection"] = [one for one in [chapter.selection] if one]
    nothing = {key: "Too little has been run for this table yet." if key in begun else "Not run yet." for key in found}
    return {key: "\n\n".join(map(sheet.to_markdown, own)) or nothing[key] for key, own in found.items()}


def fill_files(chapters: Sequence[Chapter], paths: Sequence[Path]) -> list[Path]:
    """Write the tables between the markers of Markdown files anew; the files that changed."""
    tables = marked_tables(chapters) if paths else {}
    changed = []
    for path in paths:
        before = read_text(path)
        try:
            after = fill_markers(before, tables)
        except ValueError as error:
            raise DataError(str(error), file=path) from None
        if after != before:
            changed.append(_write(path, after))
    return changed


def _blocks(chapters: Sequence[Chapter], folder: Path, warnings: Sequence[str]) -> Iterator[Block]:
    yield Heading(1, _TITLE)
    yield from map(Words, [*warnings, *_INTRODUCTION])
    yield Heading(2, "State and verdicts")
    yield _state_sheet(chapters)
    yield _verdict_sheet(chapters)
    pictures = sorted((folder / "figures").glob("*.png"))
    for chapter in chapters:
        own = [picture for picture in pictures if _owner(picture, chapters) == chapter.experiment.name]
        if chapter.begun or own:
            yield from _chapter_blocks(chapter, own)
    others = [picture for picture in pictures if _owner(picture, chapters) is None]
    if others:
        yield Heading(2, "Other figures")
        yield from (Picture(picture, picture.stem) for picture in others)
    if (folder / DISCUSSION).is_file():
        yield Heading(2, "Discussion")
        yield Words("What reproduces, what does not, and why:", DISCUSSION, "docs/reproduction.md")


def _chapter_blocks(chapter: Chapter, pictures: Sequence[Path]) -> Iterator[Block]:
    experiment = chapter.experiment
    yield Heading(2, experiment.name)
    yield Words(f"{experiment.title}." + (f" {experiment.note}" if experiment.note else ""))
    for results in chapter.begun:
        progress = results.progress
        yield Heading(3, f"{experiment.name}, {results.protocol} protocol")
        yield Words(f"{progress.done} of {progress.all} cells ({progress.state}). {provenance(results.rows.values())}")
        yield from (*main_sheets(results), *average_sheets(results), *rival_sheets(results), *t_test_sheets(results))
        rocket = minirocket_sheet(results)
        if rocket is not None:
            yield rocket
    if chapter.selection is not None:
        yield Heading(3, f"{experiment.name}: what choosing by the test epoch is worth")
        yield chapter.selection
    yield from (Picture(picture, f"{experiment.title}: {picture.stem}") for picture in pictures)


def _state_sheet(chapters: Sequence[Chapter]) -> Sheet:
    lines = []
    for chapter in chapters:
        for protocol, results in chapter.results.items():
            progress = results.progress
            counts = map(str, (progress.done, progress.runnable, progress.all))
            names = (chapter.experiment.name, chapter.experiment.title, protocol)
            lines.append((*map(Entry, names), *map(Entry, counts), Entry(progress.state)))
    heads = ("name", "what", "protocol", "done", "can be run here", "all", "state")
    return Sheet("Cells of each table and figure", heads, tuple(lines), 3, 1)


def _verdict_sheet(chapters: Sequence[Chapter]) -> Sheet:
    lines = []
    for results in (results for chapter in chapters for results in chapter.begun):
        # by the figure that counts; a picture is no contest
        contest = results.experiment.ours and results.experiment.draw is None
        for metric in results.experiment.metrics[:1] if contest else ():
            counts = verdict_counts(results, metric)
            names = (results.experiment.name, results.protocol, results.experiment.ours, metric.label)
            paper = f"{counts.reached} of {counts.printed}" if counts.printed else "-"
            numbers = (counts.best, counts.close, counts.behind, counts.alone)
            lines.append((*map(Entry, names), *(Entry(str(number)) for number in numbers), Entry(paper)))
    heads = (
        "best",
        "within one standard error of the best",
        "behind",
        "nothing to compare",
        "at the paper's number or better",
    )
    title = "In how many places (data sets and settings) our model is where"
    return Sheet(title, ("name", "protocol", "model", "metric", *heads), tuple(lines), 4)


def _draw(results: Results, folder: Path) -> list[Path]:
    """The figure that the experiment is, and the ranks over data sets by its first metric."""
    experiment, written = results.experiment, []
    if experiment.draw is not None:
        written.append(experiment.draw(list(results.rows.values()), folder / f"{experiment.name}.png"))
    # where no model is ours, there is nothing to rank
    for metric in experiment.metrics[:1] if experiment.ours else ():
        found = critical_difference(results, metric)
        if found is None:
            continue
        title = (
            f"Mean rank by {metric.label} over {found.sets} data sets, {results.protocol} protocol; Friedman's test "
            f"p = {found.p:.2g}\nA bar joins models that Nemenyi's test at 5 % cannot tell apart"
        )
        path = folder / f"{experiment.name}-{results.protocol}-critical-difference.png"
        written.append(draw_critical_difference(found.ranks, found.difference, path, ours=experiment.ours, title=title))
    return written


def _owner(picture: Path, chapters: Sequence[Chapter]) -> str | None:
    """The experiment with the longest name that the picture's begins with."""
    names = [chapter.experiment.name for chapter in chapters]
    return max((name for name in names if picture.stem.startswith(name)), key=len, default=None)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path
