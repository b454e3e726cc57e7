"""Batch scoring: predictions for tables of any size, block by block, resumable and in shards."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from contiformer import __version__
from contiformer.cli.commands import as_options
from contiformer.cli.run_folder import flat, note, shown
from contiformer.data import DataError, read_text, write_text
from contiformer.data.files import locked, make_folder
from contiformer.data.readers.blocks import BLOCK_ROWS, Block, Blocks, find_tables
from contiformer.estimators.scoring import Scorer, fingerprint

MANIFEST = "_manifest.json"
FORMATS = ("parquet", "csv")
STDIN = "-"
#: Seconds between lines of progress where there is no terminal.
_EVERY = 10.0
Writer = Callable[[pl.DataFrame, Path], None]


@dataclass(frozen=True)
class Options:
    """Options of batch scoring.

    Attributes:
        shard: (i, n): of every n blocks the i-th, from 1.
        on_error: "stop" at a bad series, or "skip" it and list it in a table.
        block_rows: rows that are read and scored together.
        format: of the parts.
    """

    shard: tuple[int, int] = (1, 1)
    on_error: str = "stop"
    block_rows: int = BLOCK_ROWS
    format: str = "parquet"

    @classmethod
    def of(cls, shard: str | None, on_error: str | None, block_rows: int | None, format: str | None) -> Options:
        """The options as they are given on the command line."""
        for hint, word, known in (("--on-error", on_error, ("stop", "skip")), ("--format", format, FORMATS)):
            if word is not None and word not in known:
                raise typer.BadParameter(f"{word!r} is none of {', '.join(known)}.", param_hint=hint)
        part, _, parts = (shard or "1/1").partition("/")
        if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
            raise typer.BadParameter(
                f"{shard!r} is not of the form I/N: pass 2/8 for the second of eight.", param_hint="--shard"
            )
        given = {"on_error": on_error, "block_rows": block_rows, "format": format}
        return cls((int(part), int(parts)), **{name: x for name, x in given.items() if x is not None})  # type: ignore[arg-type]


def score_to_folder(
    scorer: Scorer, run: Path, given: str, output: Path, options: Options, asked: Mapping[str, Any], write: Writer
) -> None:
    """Score the blocks that ``output`` lacks, each into a file of its own.

    Args:
        scorer: the model, and the question.
        run: its folder.
        given: file, folder or pattern of the input; ``-``: stdin.
        output: folder of the parts; it is made.
        options: of the batch.
        asked: further options that change the predictions, for the manifest.
        write: writes a table to a path, atomically.
    """
    make_folder(output)
    name = "_rows-{}-of-{}".format(*options.shard)
    with locked(output / name, wait=False) as free, _emptied(output / name) as folder:
        if not free:
            remedy = "wait for it, or pass --shard 1/2 here and --shard 2/2 there"
            raise DataError("another process is scoring into this folder", file=output, remedy=remedy)
        blocks, facts = _blocks(scorer, given, folder, options, output)
        kept = asdict(options) | {"shard": None} | dict(asked) | {"columns": asdict(scorer.columns)}
        begun: dict[str, Any] = {"contiformer": __version__, "run": fingerprint(run), "input": facts, "options": kept}
        begun |= {"rows": blocks.rows, "series": blocks.series, "parts": len(blocks)}
        _check_manifest(output, json.loads(json.dumps(begun, default=str)))
        mine = [n for n in range(len(blocks)) if n % options.shard[1] == options.shard[0] - 1]
        missing = [n for n in mine if not _is_done(output, n, blocks, options.format)]
        total = tuple(sum(blocks.size(n)[k] for n in mine) for k in (0, 1))
        done = tuple(total[k] - sum(blocks.size(n)[k] for n in missing) for k in (0, 1))
        if done[1]:
            note(f"{len(mine) - len(missing)} of {len(mine)} parts are in {output} already")
        skipped = 0
        with _progress(total, done) as advance:
            for block in blocks.read(missing, folder) if missing else ():
                table, refused = score_block(scorer, block, options.on_error == "skip")
                skipped += len(refused)
                if refused:
                    # before the part, whose presence says that the block is done
                    pl.DataFrame(refused).write_csv(folder / "refused.csv")
                    write_text(_refused(output, block.number), (folder / "refused.csv").read_text())
                if table is not None:
                    write(table, _part(output, block.number, options.format))
                advance(*blocks.size(block.number))
    refusals = f"; {skipped:,} series were refused, see {output}/_refused-*.csv" if skipped else ""
    several = f"{len(blocks)} part" + ("" if len(blocks) == 1 else "s")
    what = f"{len(mine)} of {several}" if options.shard[1] > 1 else several
    typer.echo(f"wrote {output}: {what}, {total[1]:,} series of {total[0]:,} rows{refusals}", err=True)


def score_in_order(scorer: Scorer, given: str, options: Options, take: Callable[[pl.DataFrame], None]) -> None:
    """Score all blocks one after the other, and pass each table on."""
    skipped: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="contiformer-") as name:
        blocks, _ = _blocks(scorer, given, Path(name), options, None)
        mine = range(options.shard[0] - 1, len(blocks), options.shard[1])
        with _progress((sum(blocks.size(n)[0] for n in mine), sum(blocks.size(n)[1] for n in mine)), (0, 0)) as advance:
            for block in blocks.read(mine, Path(name)):
                table, refused = score_block(scorer, block, options.on_error == "skip")
                skipped += refused
                if table is not None:
                    take(table)
                advance(*blocks.size(block.number))
    for one in skipped[:20]:
        note(f"refused {one['id']!r}: {one['file']}, row {one['row']}: {one['problem']}")
    if len(skipped) > 20:
        note(f"refused {len(skipped) - 20:,} more; write to a folder for a table of them")


def score_block(scorer: Scorer, block: Block, skip: bool) -> tuple[pl.DataFrame | None, list[dict[str, Any]]]:
    """The predictions for a block; with ``skip``, those of its good series, and a row for each series refused."""
    try:
        return scorer(block.frame, block.place, block.first), []
    except (DataError, ValueError, FloatingPointError) as error:
        if not skip:
            raise
        problem = error if isinstance(error, DataError) else DataError(str(error))
    # halves, and halves of those: few bad series cost few attempts
    id = scorer.columns.id
    ids = block.frame[id] if id is not None else pl.Series([None] * block.frame.height, dtype=pl.Int64)
    numbers = ids.rle_id()
    last = int(numbers[-1])
    if last == 0:
        file, row = (problem.file, problem.row) if problem.row is not None else block.place.of_row(0)
        told = {"file": None if file is None else str(file), "row": row, "column": problem.column}
        advice = f"; {problem.remedy}" if problem.remedy else ""
        return None, [{"id": ids[0], **told, "problem": as_options(f"{problem.problem}{advice}")}]
    tables, refused = [], []
    for first, stop in ((0, last // 2 + 1), (last // 2 + 1, last + 1)):
        inside = ((numbers >= first) & (numbers < stop)).to_numpy()
        part = replace(
            block, first=block.first + first, frame=block.frame.filter(inside), place=block.place.only(inside)
        )
        table, bad = score_block(scorer, part, skip)
        tables += [] if table is None else [table]
        refused += bad
    return pl.concat(tables) if tables else None, refused


def _blocks(
    scorer: Scorer, given: str, folder: Path, options: Options, output: Path | None
) -> tuple[Blocks, dict[str, Any]]:
    """The blocks of the input, and what tells whether it has changed."""
    if scorer.columns.time is None:
        remedy = "pass --time, and --id if there are several series"
        raise DataError("the run does not say which column is the time", remedy=remedy)
    facts: dict[str, Any]
    if given == STDIN:
        file, digest = _from_stdin(folder)
        files, facts = [file], {"stdin": digest}
    else:
        files = find_tables(given)
        facts = {str(file): [file.stat().st_size, file.stat().st_mtime_ns] for file in files}
        if output is not None and Path(given).is_dir() and output.resolve().is_relative_to(Path(given).resolve()):
            raise DataError("the output lies in the input folder", file=output, remedy="choose another with --output")
    blocks = Blocks(files, scorer.columns.id, scorer.required, options.block_rows, scorer.answers_per_series)
    return blocks, facts


def _from_stdin(folder: Path) -> tuple[Path, str]:
    """A copy of stdin, which is read twice: CSV, gzipped or not, or Parquet, as its first bytes say."""
    digest, path = hashlib.sha256(), folder / "stdin"
    with path.open("wb") as copy:
        while data := sys.stdin.buffer.read(1 << 20):
            digest.update(data)
            copy.write(data)
    if not path.stat().st_size:
        raise DataError("stdin is empty", remedy="pipe a CSV table with a line of column names into the command")
    with path.open("rb") as file:
        ending = ".parquet" if file.read(4) == b"PAR1" else ".csv"
    return path.rename(path.with_suffix(ending)), digest.hexdigest()


@contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    """A folder for temporary files, without those of a process that was killed; removed at the end."""
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _part(output: Path, number: int, format: str) -> Path:
    return output / f"part-{number + 1:05d}.{format}"


def _refused(output: Path, number: int) -> Path:
    return output / f"_refused-{number + 1:05d}.csv"


def _is_done(output: Path, number: int, blocks: Blocks, format: str) -> bool:
    """Whether a block has its part, or all of its series were refused."""
    refused = _refused(output, number)
    if _part(output, number, format).is_file():
        return True
    return refused.is_file() and pl.read_csv(refused, infer_schema=False).height == blocks.size(number)[1]


def _check_manifest(output: Path, now: Mapping[str, Any]) -> None:
    """Write what the parts are made from; refuse to go on with anything else."""
    path = output / MANIFEST
    if not path.is_file():
        if any(output.glob("part-*")):
            problem = f"there are parts, but no {MANIFEST} says what they are made from"
            raise DataError(problem, file=output, remedy="choose an empty folder with --output")
        write_text(path, json.dumps(now, indent=1))
        return
    try:
        before = flat(json.loads(read_text(path)))
    except (ValueError, AttributeError) as error:
        remedy = "remove the folder, or choose another with --output"
        raise DataError(f"is damaged ({error})", file=path, remedy=remedy) from None
    after = flat(now)
    other = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    if other:
        named = ", ".join(f"{name} {shown(before.get(name))} (now {shown(after.get(name))})" for name in other[:4])
        remedy = "repeat the same command with the same run and input, or choose another folder with --output"
        raise DataError(f"the parts in {output} were begun with {named}", remedy=remedy)


@contextmanager
def _progress(total: Sequence[int], done: Sequence[int]) -> Iterator[Callable[[int, int], None]]:
    """Rows and series on stderr: a bar on a terminal, otherwise a line now and then."""
    console = Console(stderr=True)
    state = [*done, time.monotonic()]
    words = TextColumn("{task.description}")
    with Progress(words, BarColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:

        def text() -> str:
            return f"{state[0]:,} of {total[0]:,} rows, {state[1]:,} of {total[1]:,} series"

        task = bar.add_task(text(), total=total[0], completed=done[0])

        def advance(rows: int, series: int) -> None:
            state[0], state[1] = state[0] + rows, state[1] + series
            bar.update(task, completed=state[0], description=text())
            if not console.is_terminal and time.monotonic() - state[2] >= _EVERY:
                state[2] = time.monotonic()
                typer.echo(f"scored {text()}", err=True)

        yield advance
