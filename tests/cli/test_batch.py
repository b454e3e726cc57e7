"""Batch scoring: blocks of whole series from any files, resumed after a kill, in shards, within bounded memory."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from contiformer.cli.main import app
from tests.cli.conftest import TINY, run
from tests.cli.test_events import ordered, orders, sequences  # noqa: F401 - fixtures


def _error(result, code=1):
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr


def _scored(*words):
    result = run("predict", *words)
    assert result.exit_code == 0, result.output
    return result


def _parts(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def _together(folder):
    return pl.concat([pl.read_parquet(path) for path in sorted(folder.glob("part-*.parquet"))])


@pytest.fixture(scope="session")
def scattered(table, tmp_path_factory):
    """The rows of the table in the order of their times, so that every series is all over three files."""
    folder = tmp_path_factory.mktemp("scattered")
    rows = pl.read_csv(table).sort("t", "who")
    for n, part in enumerate(rows.iter_slices(70)):
        part.write_csv(folder / f"{n}.csv")
    return folder


@pytest.fixture(scope="session")
def forecast(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "forecast"
    columns = ("--id", "who", "--time", "t", "--values", "x")
    options = ("--set", "horizon=2", "--set", "history=5")
    result = run("train", "forecasting", "--data", table, *columns, *options, *TINY, "--output", folder)
    assert result.exit_code == 0, result.output
    return folder


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("classified", ()),
        ("interpolated", ("--at", "0:2:0.5")),
        ("interpolated", ("--quantiles", "0.1,0.9")),
        ("forecast", ()),
        (
            "forecast",
            (
                "--quantiles",
                "0.5",
            ),
        ),
    ],
)
def test_parts_are_the_table_of_one_file(task, options, table, scattered, tmp_path, request):
    found = request.getfixturevalue(task)
    folder = found[0] if isinstance(found, tuple) else found
    _scored(folder, "--input", table, "--output", tmp_path / "whole.parquet", *options)
    result = _scored(folder, "--input", scattered, "--output", tmp_path / "parts", "--block-rows", 50, *options)
    assert "24 series of 192 rows" in result.stderr
    assert len(_parts(tmp_path / "parts")) > 3
    whole, parts = pl.read_parquet(tmp_path / "whole.parquet"), _together(tmp_path / "parts")
    assert_frame_equal(whole, parts, rel_tol=1e-5, abs_tol=1e-6)
    assert not (tmp_path / "parts" / "_rows-1-of-1").exists()


@pytest.mark.parametrize("options", [(), ("--n", "2")])
def test_events(options, orders, ordered, tmp_path):  # noqa: F811
    rows = pl.read_csv(orders).sort("hour")
    (tmp_path / "in").mkdir()
    for n, part in enumerate(rows.iter_slices(50)):
        part.write_parquet(tmp_path / "in" / f"{n}.parquet")
    _scored(ordered[0], "--input", orders, "--output", tmp_path / "whole.parquet", *options)
    _scored(ordered[0], "--input", tmp_path / "in", "--output", tmp_path / "parts", "--block-rows", 40, *options)
    assert len(_parts(tmp_path / "parts")) > 2
    assert_frame_equal(pl.read_parquet(tmp_path / "whole.parquet"), _together(tmp_path / "parts"), rel_tol=1e-4)


def test_kinds_of_files(classified, table, scattered, tmp_path):
    folder = classified[0]
    expected = _scored(folder, "--input", table).stdout
    rows = pl.read_csv(table).sort("t")
    rows.write_parquet(tmp_path / "one.parquet", row_group_size=17)
    with (tmp_path / "one.csv.gz").open("wb") as file:
        subprocess.run(["gzip", "-c", table], stdout=file, check=True)
    names = [tmp_path / "one.parquet", tmp_path / "one.csv.gz", scattered, f"{scattered}/*.csv"]
    for name in names:
        result = _scored(folder, "--input", name, "--output", "-", "--block-rows", 40)
        found, wanted = (pl.read_csv(io.StringIO(text)) for text in (result.stdout, expected))
        assert_frame_equal(found, wanted, rel_tol=1e-5)
    shutil.copy(tmp_path / "one.parquet", scattered / "_ignored.parquet")
    shutil.copytree(scattered, tmp_path / "both")
    rows.write_parquet(tmp_path / "both" / "a.parquet")
    assert "both Parquet and CSV" in _error(
        run("predict", folder, "--input", tmp_path / "both", "--output", tmp_path / "o")
    )


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_stdin_and_stdout(kind, classified, table):
    rows, packed = pl.read_csv(table), io.BytesIO()
    (rows.write_csv if kind == "csv" else rows.write_parquet)(packed)
    words = ["predict", str(classified[0]), "--input", "-", "--output", "-", "--block-rows", "30"]
    result = CliRunner().invoke(app, words, input=packed.getvalue())
    assert result.exit_code == 0, result.output
    found = pl.read_csv(io.StringIO(result.stdout))
    expected = pl.read_csv(io.StringIO(_scored(classified[0], "--input", table).stdout))
    assert_frame_equal(found, expected, rel_tol=1e-5)
    assert "stdin is empty" in CliRunner().invoke(app, words, input=b"").stderr


def test_ids_stay_what_they_are_over_all_blocks(classified, table, tmp_path):
    rows = pl.read_csv(table).with_columns(pl.col("who").str.strip_prefix("p"))
    for name, ids in (("words", pl.col("who").replace("23", "007")), ("numbers", pl.col("who"))):
        rows.with_columns(ids).write_csv(tmp_path / f"{name}.csv")
        _scored(classified[0], "--input", tmp_path / f"{name}.csv", "--output", tmp_path / name, "--block-rows", 20)
    assert _together(tmp_path / "words")["who"].to_list() == sorted([*map(str, range(23)), "007"])
    assert _together(tmp_path / "numbers")["who"].to_list() == list(range(24))


def test_shards_have_nothing_in_common_and_are_all(classified, scattered, tmp_path):
    words = (classified[0], "--input", scattered, "--block-rows", 30)
    _scored(*words, "--output", tmp_path / "whole")
    seen = set()
    for shard in (2, 3, 1):
        _scored(*words, "--output", tmp_path / "parts", "--shard", f"{shard}/3")
        _scored(*words, "--output", tmp_path / f"alone{shard}", "--shard", f"{shard}/3")
        own = set(_parts(tmp_path / f"alone{shard}"))
        assert own
        assert not own & seen
        seen |= own
    assert _parts(tmp_path / "parts") == _parts(tmp_path / "whole")
    assert seen == set(_parts(tmp_path / "whole"))
    for wrong in ("0/3", "4/3", "3", "a/b"):
        assert "--shard" in _error(run("predict", *words, "--output", tmp_path / "x", "--shard", wrong), 2)


def test_a_killed_command_goes_on_where_it_was(classified, table, tmp_path):
    draw = np.random.default_rng(0)
    rows = {"who": np.repeat(np.arange(1500), 8), "t": draw.uniform(0, 10, 12_000), "x": draw.normal(size=12_000)}
    pl.DataFrame(rows).write_parquet(tmp_path / "many.parquet")
    words = ["predict", classified[0], "--input", tmp_path / "many.parquet", "--block-rows", 80]
    assert _scored(*words[1:], "--output", tmp_path / "whole")
    command = [sys.executable, "-m", "contiformer.cli.main", *map(str, words), "--output", str(tmp_path / "killed")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while len(_parts(tmp_path / "killed")) < 5:
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = _parts(tmp_path / "killed")
    times = {name: (tmp_path / "killed" / name).stat().st_mtime_ns for name in before}
    assert 5 <= len(before) < len(_parts(tmp_path / "whole"))
    assert "are in" in _scored(*words[1:], "--output", tmp_path / "killed").stderr
    assert _parts(tmp_path / "killed") == _parts(tmp_path / "whole")
    assert {name: (tmp_path / "killed" / name).stat().st_mtime_ns for name in before} == times
    assert sorted(path.name for path in (tmp_path / "killed").glob("_*")) == ["_manifest.json"]


def test_another_model_option_or_input_is_refused(classified, interpolated, scattered, tmp_path):
    given = tmp_path / "in"
    shutil.copytree(scattered, given)
    words = ("--input", given, "--output", tmp_path / "out")
    _scored(interpolated, *words, "--at", "1")
    assert "run" in _error(run("predict", classified[0], *words))
    assert "options.at 1 (now 2)" in _error(run("predict", interpolated, *words, "--at", "2"))
    assert "options.block_rows" in _error(run("predict", interpolated, *words, "--at", "1", "--block-rows", 9))
    first = given / "0.csv"
    os.utime(first, (1, 1))
    error = _error(run("predict", interpolated, *words, "--at", "1"))
    assert str(first) in error
    assert "choose another folder" in error
    (tmp_path / "out" / "_manifest.json").write_text("{")
    assert "damaged" in _error(run("predict", interpolated, *words, "--at", "1"))
    (tmp_path / "out" / "_manifest.json").unlink()
    assert "no _manifest.json" in _error(run("predict", interpolated, *words, "--at", "1"))
    inside = _error(run("predict", interpolated, "--input", given, "--output", given / "out"))
    assert "lies in the input folder" in inside


def test_times_in_a_file_count_as_an_option(interpolated, scattered, tmp_path):
    (tmp_path / "at.txt").write_text("t\n1\n")
    words = (interpolated, "--input", scattered, "--output", tmp_path / "out", "--at", tmp_path / "at.txt")
    _scored(*words)
    _scored(*words)
    (tmp_path / "at.txt").write_text("t\n2\n")
    assert "options.at" in _error(run("predict", *words))


def test_bad_rows_are_named_or_skipped(classified, table, tmp_path):
    rows = pl.read_csv(table).with_columns(pl.col("x").cast(pl.String))
    bad = {5: ("x", "high"), 40: ("t", None), 100: ("who", None)}
    lines = rows.to_dicts()
    for at, (column, value) in bad.items():
        lines[at][column] = value
    pl.DataFrame(lines, schema=rows.schema).write_csv(tmp_path / "bad.csv")
    words = (classified[0], "--input", tmp_path / "bad.csv", "--block-rows", 60)
    error = _error(run("predict", *words, "--output", tmp_path / "stopped"))
    assert f"{tmp_path}/bad.csv, row 102, column 'who': is missing" in error
    result = _scored(*words, "--output", tmp_path / "out", "--on-error", "skip")
    assert "3 series were refused" in result.stderr
    refused = pl.concat([pl.read_csv(path) for path in sorted((tmp_path / "out").glob("_refused-*.csv"))])
    assert refused.rows() == [
        (None, f"{tmp_path}/bad.csv", 102, "who", "is missing; fill it in or remove the row"),
        ("p0", f"{tmp_path}/bad.csv", 7, "x", refused["problem"][1]),
        ("p5", f"{tmp_path}/bad.csv", 42, "t", refused["problem"][2]),
    ]
    assert "'high' is not a number" in refused["problem"][1]
    kept = _together(tmp_path / "out")
    assert kept["who"].to_list() == sorted({f"p{n}" for n in range(24)} - {"p0", "p5"})
    again = _scored(*words, "--output", tmp_path / "out", "--on-error", "skip")
    assert "are in" in again.stderr
    assert "row 7" in _scored(*words, "--output", "-", "--on-error", "skip").stderr
    assert "--on-error" in _error(run("predict", *words, "--output", tmp_path / "x", "--on-error", "no"), 2)


def test_a_block_of_which_all_is_refused_is_done(classified, table, tmp_path):
    bad = pl.col("who") == "p3"
    pl.read_csv(table).with_columns(x=pl.when(bad).then(pl.lit("a")).otherwise(pl.lit("1"))).write_csv(
        tmp_path / "a.csv"
    )
    words = (classified[0], "--input", tmp_path / "a.csv", "--output", tmp_path / "out", "--block-rows", 8)
    _scored(*words, "--on-error", "skip")
    assert len(_parts(tmp_path / "out")) == 23
    assert "24 of 24 parts are in" in _scored(*words, "--on-error", "skip").stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"who,t,x\na,1,2\nb,2\n", "row 3: 2 fields where the column names are 3"),
        (b"who,t,x\na,1,2\nb,\xff,2\n", "row 3: byte 0xff"),
        (b"who,t\na,1\n", "no column 'x'"),
        (b"", "empty"),
        (b"who,t,x\n", "there are no rows"),
    ],
)
def test_damaged_tables_are_rejected(text, problem, classified, tmp_path):
    (tmp_path / "a.csv").write_bytes(text)
    words = (classified[0], "--input", tmp_path / "a.csv", "--output", tmp_path / "out")
    error = _error(run("predict", *words))
    assert problem in error
    assert "a.csv" in error


def test_two_processes_do_not_score_the_same(classified, scattered, tmp_path):
    from filelock import FileLock  # noqa: PLC0415

    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / "._rows-1-of-1.lock"):
        error = _error(run("predict", classified[0], "--input", scattered, "--output", tmp_path / "out"))
    assert "another process" in error


MEASURE = """
import sys
from pathlib import Path
from contiformer.cli.main import app

def predict(run, given, output):
    try:
        app(["predict", run, "--input", given, "--output", output, *more])
    except SystemExit as end:
        assert end.code == 0

def memory(what):
    return int(Path("/proc/self/status").read_text().partition(what + ":")[2].split()[0]) * 1024

run, small, large, output, *more = sys.argv[1:]
predict(run, small, output + "/small")
libraries = memory("VmRSS")
predict(run, large, output + "/large")
print(memory("VmHWM") - libraries)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("task", "rows", "times", "limit"),
    [
        # a table of 1 M predictions; the rows alone are small
        ("interpolated", 100_000, "0:10:0.1", 100e6),
        pytest.param("classified", 1_000_000, None, 1e9, marks=pytest.mark.slow),
    ],
)
def test_memory_is_bounded(task, rows, times, limit, table, tmp_path, request):
    found = request.getfixturevalue(task)
    folder = found[0] if isinstance(found, tuple) else found
    draw = np.random.default_rng(0)
    values = {"who": np.arange(rows) % (rows // 10), "t": draw.uniform(0, 10, rows), "x": draw.normal(size=rows)}
    pl.DataFrame(values).write_csv(tmp_path / "large.csv")
    arguments = [folder, table, tmp_path / "large.csv", tmp_path, *(["--at", times] if times else [])]
    command = [sys.executable, "-c", MEASURE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    manifest = json.loads((tmp_path / "large" / "_manifest.json").read_text())
    assert (manifest["rows"], manifest["series"]) == (rows, rows // 10)
    assert _together(tmp_path / "large").height == rows // 10 * (101 if times else 1)
    assert int(done.stdout) < limit
