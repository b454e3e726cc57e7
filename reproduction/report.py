"""The report: one page with all tables and figures, and the same tables for other documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from contiformer.data import DataError, read_text, write_text
from contiformer.plots import Bars, Block, Entry, Findings, Fold, Heading, Picture, Sheet, Words, page_to_html
from reproduction import experiments
from reproduction.comparison import averages, critical_difference, draw_critical_difference
from reproduction.document import fill_markers, page_to_markdown, sheet_to_markdown
from reproduction.experiments import Experiment, Metric, Protocol
from reproduction.results import Results
from reproduction.store import Row, Store
from reproduction.tables import (
    VerdictCounts,
    average_sheets,
    main_sheets,
    rival_sheets,
    selection_sheet,
    stale_reasons,
    t_test_sheets,
    verdict_counts,
)

#: Relative to the folder of the report, where that is the one in the repository.
DISCUSSION = "../../docs/reproduction.md"
_TITLE = "The paper's tables and figures, and ours"
_LEGEND = (
    "Every number is the mean over the repeats in brackets, with their standard deviation; the paper's number stands "
    "below it. Bold: the best of its line. A cell that was not run, or whose data are not here, says so. †: stale "
    "results, of an older protocol or without a known commit; they count as not run, and are in no average, rank or "
    "test. Honest protocol: the model is chosen by a part of the training data, the test data are read once. Paper "
    "protocol: the epoch with the best test figure, as the authors' code does; the paper's numbers are of that kind. "
    "Written by `python -m reproduction report` from the results of single trainings, the CSV files beside it."
)
_QUICK = "Quick trainings, which show that everything runs; their numbers mean little."


@dataclass(frozen=True)
class Chapter:
    """An experiment with its results under each protocol."""

    experiment: Experiment
    results: dict[Protocol, Results]

    @property
    def begun(self) -> list[Results]:
        """Results of the protocols that have any."""
        return [results for results in self.results.values() if results.rows]

    @property
    def selection(self) -> Sheet | None:
        """The gain of choosing by the test epoch, where both protocols were run."""
        if len(self.results) < 2 or not self.experiment.metrics:
            return None
        return selection_sheet(self.results["honest"], self.results["paper"])


def read_chapters(store: Store) -> list[Chapter]:
    """All experiments, in the order of the report."""
    found = map(experiments.get, experiments.EXPERIMENTS)
    return [Chapter(one, {p: Results.read(one, p, store) for p in one.protocols}) for one in found]


def gone_data(chapters: Sequence[Chapter]) -> list[str]:
    """Data sets of finished cells that are not here: the page then says "no data" where cells are missing."""
    rows = ((one.experiment, cell) for chapter in chapters for one in chapter.begun for cell in one.rows)
    return list(dict.fromkeys(cell.data for experiment, cell in rows if experiment.absent(cell)))


def write_report(chapters: Sequence[Chapter], folder: Path, *, quick: bool = False) -> list[Path]:
    """Write ``report.md``, ``report.html`` and the figures into the folder.

    Pictures that others have put into ``figures/`` are shown with the experiment whose name theirs begins with.

    Returns:
        The files that were written.
    """
    written: list[Path] = []
    undrawn = None
    for results in (results for chapter in chapters for results in chapter.begun):
        try:
            written += _draw(results, folder / "figures")
        except ModuleNotFoundError as error:
            undrawn = f"Pictures are not drawn anew: {error}."
    blocks = list(_blocks(chapters, folder, [*([_QUICK] if quick else []), *([undrawn] if undrawn else [])]))
    written.append(_write(folder / "report.md", page_to_markdown(blocks, folder)))
    return [*written, _write(folder / "report.html", page_to_html(blocks))]


def marked_tables(chapters: Sequence[Chapter]) -> dict[str, str]:
    """The Markdown of every table, by the name that a marker in a document gives it.

    For an experiment ``uea`` there are ``uea`` (all of it), ``uea-averages``, ``uea-rivals`` and ``uea-tests``, the
    same with ``-paper`` behind ``uea`` for the other protocol, ``uea-selection`` and ``uea-further``; ``state`` and
    ``verdicts`` are over all experiments.
    """
    found = {"state": [_state_sheet(chapters)], "verdicts": [_verdict_sheet(chapters)]}
    begun = set()
    for chapter in chapters:
        name = chapter.experiment.name
        for protocol, results in chapter.results.items():
            key = name if protocol == "honest" else f"{name}-{protocol}"
            found[key] = main_sheets(results) if results.rows else []
            found[f"{key}-averages"] = average_sheets(results)
            found[f"{key}-rivals"] = rival_sheets(results)
            found[f"{key}-tests"] = t_test_sheets(results)
            found[f"{key}-further"] = results.experiment.further_sheets(results)
            if results.rows:
                begun |= {key, *(f"{key}-{part}" for part in ("averages", "rivals", "tests", "further"))}
        found[f"{name}-selection"] = [one for one in [chapter.selection] if one]
    nothing = {key: "Too little has been run for this table yet." if key in begun else "Not run yet." for key in found}
    return {key: "\n\n".join(map(sheet_to_markdown, own)) or nothing[key] for key, own in found.items()}


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
    yield from map(Words, warnings)
    yield Heading(2, "Findings")
    yield from _findings(chapters)
    if (folder / DISCUSSION).is_file():
        yield Words("Which results reproduce, which do not, and why:", DISCUSSION, "docs/reproduction.md")
    yield Fold("Wins, ties and losses as a table", (_verdict_sheet(chapters),))
    yield Fold("How to read the tables", (Words(_LEGEND),))
    pictures = sorted((folder / "figures").glob("*.png"))
    for chapter in chapters:
        own = [picture for picture in pictures if _owner(picture, chapters) == chapter.experiment.name]
        if chapter.begun or own:
            yield from _chapter_blocks(chapter, own)
    others = [picture for picture in pictures if _owner(picture, chapters) is None]
    if others:
        yield Heading(2, "Other figures")
        yield from (Picture(picture, picture.stem) for picture in others)
    yield Heading(2, "Cells, machines and versions")
    yield Fold("Cells of each table and figure", (_state_sheet(chapters),))
    begun = [results for chapter in chapters for results in chapter.begun]
    facts = (
        f"{one.experiment.name}, {one.protocol} protocol: {provenance(one.rows.values())}"
        + (f" {one.progress.stale} more are stale: {stale_reasons(one)}." if one.progress.stale else "")
        for one in begun
    )
    yield Fold("Machines, versions, commits and dates of the results", (Findings(tuple(facts)),))


def _findings(chapters: Sequence[Chapter]) -> Iterator[Block]:
    """What reproduces: ContiFormer is the best, or within one standard error of it, in most places of a table."""
    said: dict[bool, list[str]] = {True: [], False: []}
    for results, metric, counts in _contests(chapters):
        all_ = counts.best + counts.close + counts.behind
        if not all_:
            continue
        paper = f"; at the paper's number or better in {counts.reached} of {counts.printed}" if counts.printed else ""
        close = f", within one standard error of the best in {counts.close}" if counts.close else ""
        name = results.experiment.name + ("" if results.protocol == "honest" else f" ({results.protocol} protocol)")
        text = f"{name}: best {metric.label} in {counts.best} of {all_} data sets and settings{close}{paper}."
        said[2 * (counts.best + counts.close) >= all_].append(text)
    if not (said[True] or said[False]):
        yield Words("Too little has been run to say what reproduces.")
    for good, title in ((True, "Reproduces"), (False, "Does not reproduce")):
        if said[good]:
            yield Heading(3, title)
            share = "at least half" if good else "fewer than half"
            ours = "ContiFormer (in an ablation its default variant)"
            yield Words(f"{ours} is the best, or within one standard error of the best, in {share} of the lines.")
            yield Findings(tuple(said[good]))


def _chapter_blocks(chapter: Chapter, pictures: Sequence[Path]) -> Iterator[Block]:
    """The chart and the main table; everything else is folded."""
    experiment, folded = chapter.experiment, list[Block]()
    yield Heading(2, experiment.name)
    yield Words(f"{experiment.title}." + (f" {experiment.note}" if experiment.note else ""))
    yield from (Picture(picture, f"{experiment.title}: {picture.stem}") for picture in pictures)
    for number, results in enumerate(chapter.begun):
        progress = results.progress
        others = [*main_sheets(results), *average_sheets(results), *rival_sheets(results), *t_test_sheets(results)]
        others += experiment.further_sheets(results)
        if number == 0:
            if not pictures and (bars := _bars(results)):
                yield bars
            yield from others[:1]
            others = others[1:]
        yield Words(f"{results.protocol} protocol: {progress.done} of {progress.all} cells ({progress.state}).")
        if others:
            folded.append(Fold(f"More tables, {results.protocol} protocol ({len(others)})", tuple(others)))
    yield from folded
    if chapter.selection is not None:
        yield Fold("Gain of choosing by the test epoch", (chapter.selection,))


def _bars(results: Results) -> Bars | None:
    """Mean ranks of the models over the places that all have; in one place their means."""
    usable = results.comparable
    for metric in usable.experiment.metrics[:1] if usable.experiment.sheets is None else ():
        models = usable.ranked_models(metric)
        places = usable.common_places(models, metric) if len(models) > 1 else []
        if not places:
            continue
        found, several = averages(usable, metric, models, places), len(places) > 1
        title = f"{metric.label}: mean rank over {len(places)} places" if several else f"{metric.label}, {places[0][0]}"
        rows = [(one.model, one.rank if several else one.mean) for one in found]
        rows.sort(key=lambda row: row[1], reverse=not several and metric.better == "max")
        form = ".2f" if several else metric.form
        return Bars(title, usable.experiment.ours, tuple((name, size, f"{size:{form}}") for name, size in rows))
    return None


def _contests(chapters: Sequence[Chapter]) -> Iterator[tuple[Results, Metric, VerdictCounts]]:
    """Results with a model of ours, by the first metric; a picture is no contest."""
    for results in (results for chapter in chapters for results in chapter.begun):
        if results.experiment.ours and results.experiment.draw is None:
            for metric in results.experiment.metrics[:1]:
                yield results, metric, verdict_counts(results, metric)


def _state_sheet(chapters: Sequence[Chapter]) -> Sheet:
    lines = []
    for chapter in chapters:
        for protocol, results in chapter.results.items():
            progress = results.progress
            counts = map(str, (progress.done, progress.stale, progress.runnable, progress.all))
            names = (chapter.experiment.name, chapter.experiment.title, protocol)
            spent = f"{hours(results.rows.values()):.1f}"
            lines.append((*map(Entry, names), *map(Entry, counts), Entry(spent), Entry(progress.state)))
    heads = ("name", "title", "protocol", "done", "stale", "can be run here", "all", "hours spent", "state")
    return Sheet("Cells of each table and figure", heads, tuple(lines), 3, 1)


def _verdict_sheet(chapters: Sequence[Chapter]) -> Sheet:
    lines = []
    for results, metric, counts in _contests(chapters):
        names = (results.experiment.name, results.protocol, results.experiment.ours, metric.label)
        paper = f"{counts.reached} of {counts.printed}" if counts.printed else "-"
        numbers = (counts.best, counts.close, counts.behind, counts.alone)
        texts = (*map(str, numbers), paper, str(counts.stale))
        lines.append((*map(Entry, names), *map(Entry, texts)))
    heads = (
        "best",
        "within one standard error of the best",
        "behind",
        "nothing to compare",
        "at the paper's number or better",
        "stale, not counted",
    )
    title = "Wins, ties and losses of ContiFormer over data sets and settings"
    return Sheet(title, ("name", "protocol", "model", "metric", *heads), tuple(lines), 4)


def _draw(results: Results, folder: Path) -> list[Path]:
    """The experiment's own figure, and the critical-difference diagram of its first metric."""
    experiment, written, results = results.experiment, [], results.comparable
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


def provenance(rows: Collection[Row]) -> str:
    """Machines, threads, versions, commits and dates of all of these rows, in one sentence or two."""
    facts = [row["machine"] for row in rows]
    machines = Counter(_machine(one) for one in facts)
    on = ", ".join(f"{name} ({n} cells)" if len(machines) > 1 else name for name, n in machines.most_common())
    days = sorted(str(one["date"])[:10] for one in facts)
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    commits = sorted({str(one["commit"]) for one in facts if one["commit"]})
    torch = sorted({str(one["torch"]) for one in facts})
    spent = hours(rows)
    took = f"{spent:.1f} hours" if spent >= 1 else f"{60 * spent:.0f} minutes"
    source = f", commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}" if commits else ""
    count = "1 cell" if len(facts) == 1 else f"{len(facts)} cells"
    return f"{count}, {took} in all, on {on}; torch {', '.join(torch)}{source}; {when}."


def hours(rows: Collection[Row]) -> float:
    """Hours of the trainings; those taken from another table are counted there."""
    return sum(float(row["seconds"]) for row in rows if "taken_from" not in row) / 3600


def _machine(facts: dict[str, object]) -> str:
    threads = facts["threads"]
    return f"{facts['cpu']}, {threads} thread{'' if threads == 1 else 's'}"


def _owner(picture: Path, chapters: Sequence[Chapter]) -> str | None:
    """The experiment with the longest name that the picture's begins with."""
    names = [chapter.experiment.name for chapter in chapters]
    return max((name for name in names if picture.stem.startswith(name)), key=len, default=None)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path
