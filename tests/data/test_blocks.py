"""Tables in blocks of whole series."""

import gzip

import numpy as np
import polars as pl
import pytest

from contiformer.data import DataError, from_frame
from contiformer.data.readers import blocks as module
from contiformer.data.readers.blocks import Blocks, find_tables


def _rows(blocks, folder, wanted=None):
    return list(blocks.read(range(len(blocks)) if wanted is None else wanted, folder))


@pytest.mark.parametrize("size", [16, 40, 1000])
def test_quoted_line_ends_divide_no_record(size, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK_BYTES", size)
    rows = [f'"a\n{n % 3}",{n},{n * 1.5},"say ""{n}"""\n' for n in range(30)]
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfid,t,x,text\n" + "".join(rows).encode()))
    blocks = Blocks(find_tables(str(tmp_path)), "id", ["id", "t", "x"], block_rows=10)
    found = _rows(blocks, tmp_path)
    assert [block.frame["id"].unique().to_list() for block in found] == [["a\n0"], ["a\n1"], ["a\n2"]]
    assert found[1].frame["t"].to_list() == list(range(1, 30, 3))
    assert found[1].frame.schema["x"] == pl.Float64


def test_an_open_quote_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK_BYTES", 100)
    (tmp_path / "a.csv").write_text('id,t\na,"1\n' + "b,2\n" * 1000)
    with pytest.raises(DataError, match=r"a.csv, row 2: a quote is not closed"):
        Blocks([tmp_path / "a.csv"], "id", ["id", "t"])


@pytest.mark.parametrize("size", [20, 10_000])
def test_types_do_not_depend_on_the_chunks(size, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK_BYTES", size)
    (tmp_path / "a.csv").write_text("id,a,b,c\n" + "".join(f"{n},{n},{n},\n" for n in range(9)) + "9,0.5,word,1\n")
    frame = _rows(Blocks([tmp_path / "a.csv"], "id", ["id", "a", "b", "c"]), tmp_path)[0].frame
    whole = pl.read_csv(tmp_path / "a.csv", infer_schema_length=None)
    assert frame.equals(whole)
    assert frame.schema == whole.schema


def test_blocks_depend_on_the_data_alone(tmp_path):
    draw = np.random.default_rng(0)
    table = pl.DataFrame({"id": draw.integers(0, 50, 600), "t": np.arange(600), "x": draw.normal(size=600)})
    seen = []
    for name, rows in (("one", table), ("other", table.sample(fraction=1, shuffle=True, seed=1))):
        folder = tmp_path / name
        folder.mkdir()
        for n, part in enumerate(rows.iter_slices(100 if name == "one" else 250)):
            part.write_parquet(folder / f"{n}.parquet")
        blocks = Blocks(find_tables(str(folder)), "id", table.columns, block_rows=64)
        assert (blocks.rows, blocks.series) == (600, table["id"].n_unique())
        found = _rows(blocks, tmp_path)
        assert [len(block.frame) for block in found] == [blocks.size(n)[0] for n in range(len(blocks))]
        seen.append([block.frame.sort("id", "t") for block in found])
    assert all(one.equals(other) for one, other in zip(*seen, strict=True))
    assert pl.concat(seen[0]).equals(table.sort("id", "t"))
    some = _rows(blocks, tmp_path, [1, 4])
    assert [block.number for block in some] == [1, 4]
    assert some[1].frame.sort("id", "t").equals(seen[0][4])


def test_predictions_count_for_the_size(tmp_path):
    pl.DataFrame({"id": np.arange(100), "t": 0.0}).write_parquet(tmp_path / "a.parquet")
    assert len(Blocks([tmp_path / "a.parquet"], "id", ["id", "t"], 50)) == 2
    assert len(Blocks([tmp_path / "a.parquet"], "id", ["id", "t"], 50, answers=9)) == 20


@pytest.mark.parametrize(
    ("ids", "kind"),
    [([1.0, 2.0], pl.Int64), ([1.5, 2.0], pl.String), ([True, False], pl.Int64), (["7", "8"], pl.String)],
)
def test_ids_are_those_of_whole_tables(ids, kind, tmp_path):
    table = pl.DataFrame({"id": ids, "t": [0, 1], "x": [1.0, 2.0]})
    table.write_parquet(tmp_path / "a.parquet")
    found = pl.concat(
        [block.frame for block in _rows(Blocks([tmp_path / "a.parquet"], "id", table.columns, 1), tmp_path)]
    )
    assert found.schema["id"] == kind
    assert found["id"].to_list() == from_frame(table, id="id", time="t").ids


def test_without_ids_all_rows_are_one_series(tmp_path):
    pl.DataFrame({"t": [2, 1], "x": [1, 2]}).write_csv(tmp_path / "a.csv")
    (block,) = _rows(Blocks([tmp_path / "a.csv"], None, ["t", "x"], block_rows=1), tmp_path)
    assert block.frame["t"].to_list() == [2, 1]


def test_errors_name_the_files_of_both_rows(tmp_path):
    for name in ("a", "b"):
        pl.DataFrame({"id": ["p", "q"], "t": [1, len(name)], "x": [1, 2]}).write_csv(tmp_path / f"{name}.csv")
    (block,) = _rows(Blocks(find_tables(str(tmp_path)), "id", ["id", "t", "x"]), tmp_path)
    with pytest.raises(DataError, match=rf"b.csv, row 2: repeats series and time of row 2 of {tmp_path}/a.csv"):
        from_frame(block.frame, id="id", time="t", place=block.place)


def test_other_files_are_rejected(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    for given in (tmp_path / "none", tmp_path, f"{tmp_path}/*.csv"):
        with pytest.raises(DataError, match="no Parquet or CSV file"):
            find_tables(str(given))
    with pytest.raises(DataError, match="cannot be read in blocks"):
        find_tables(str(tmp_path / "a.txt"))
