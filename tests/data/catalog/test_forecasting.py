import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contiformer.data import Series, SeriesSet
from contiformer.data.catalog import borders, load_forecasting, windows
from contiformer.data.catalog.forecasting import PAPER_LENGTHS
from contiformer.data.errors import DataError


def _long(name, rows):
    values = np.arange(2 * rows, dtype=float).reshape(rows, 2)
    return SeriesSet([Series.of(np.arange(rows), values, id=name)], channels=["a", "b"])


def test_the_borders_everyone_uses():
    hour = 30 * 24
    assert borders("ETTh1") == {
        "train": (0, 12 * hour),
        "val": (12 * hour, 16 * hour),
        "test": (16 * hour, 20 * hour),
    }
    assert borders("ETTm2", input_length=96)["test"] == (4 * 16 * hour - 96, 4 * 20 * hour)
    assert borders("Weather", input_length=96) == {
        "train": (0, 36887),
        "val": (36887 - 96, 52696 - 10539),
        "test": (52696 - 10539 - 96, 52696),
    }
    assert borders("Exchange") == {"train": (0, 5311), "val": (5311, 6071), "test": (6071, 7588)}
    assert borders("ILI", input_length=36) == {"train": (0, 676), "val": (640, 773), "test": (737, 966)}


@given(st.sampled_from(["ILI", "Weather"]), st.integers(50, 400), st.integers(1, 20), st.integers(1, 20))
def test_every_window_is_there_and_right(name, rows, seen, horizon):
    data = _long(name, rows)
    for part, (start, end) in borders(name, input_length=seen, rows=rows).items():
        count = end - start - seen - horizon + 1
        if count < 1:
            with pytest.raises(DataError, match="a window"):
                windows(data, part, seen, horizon)
            continue
        cut = windows(data, part, seen, horizon)
        assert len(cut) == count
        for n in {0, count // 2, count - 1}:
            window = cut[n]
            assert window.id == start + n
            assert window.times.tolist() == list(range(start + n, start + n + seen))
            assert window.target_times.tolist() == list(range(start + n + seen, start + n + seen + horizon))
            np.testing.assert_array_equal(window.target_values[:, 0], 2 * window.target_times)
        assert cut[count - 1].target_times[-1] == end - 1


def test_windows_are_views_that_are_made_when_asked_for():
    data = _long("ILI", 966)
    cut = windows(data, "train", 36, 24)
    assert cut.lazy
    assert np.shares_memory(cut[5].values, data[0].values)
    assert np.shares_memory(cut[5].target_values, data[0].values)
    assert cut.schema.targets == ("a", "b")
    assert cut.lengths.tolist() == [36] * len(cut)


def test_parts_do_not_share_a_row_to_forecast():
    data = _long("Exchange", 7588)
    targets = [
        {t for window in windows(data, part, 96, 96) for t in (window.target_times[0], window.target_times[-1])}
        for part in ("train", "val", "test")
    ]
    assert max(targets[0]) < min(targets[1])
    assert max(targets[1]) < min(targets[2])


def test_counts_of_the_papers_windows(shared):
    expected = {"ETTh2": 2785, "ETTm2": 11425, "Exchange": 1422, "Weather": 10444, "ILI": 170}
    for name, count in expected.items():
        seen, horizons = PAPER_LENGTHS[name]
        data = load_forecasting(name)
        assert len(windows(data, "test", seen, 96 if seen == 96 else 24)) == count
        for horizon in horizons:
            start, end = borders(name, input_length=seen)["test"]
            assert len(windows(data, "test", seen, horizon)) == end - start - seen - horizon + 1


def test_arguments_that_make_no_sense():
    data = _long("ILI", 966)
    with pytest.raises(DataError, match="no part 'dev'"):
        windows(data, "dev", 36, 24)
    with pytest.raises(DataError, match="input_length and horizon must be 1 or more"):
        windows(data, "val", 0, 24)
    with pytest.raises(DataError, match="one series"):
        windows(SeriesSet([data[0], data[0]]), "val", 36, 24)
    with pytest.raises(DataError, match="cannot be split"):
        borders("ETTh1", rows=100)
    with pytest.raises(DataError, match="did you mean 'ETTh2'"):
        load_forecasting("ETTh3")


HEAD = "date,a,OT\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("day,a\n2020-01-01 00:00:00,1\n", "row 1: the first column"),
        (HEAD + "2020-01-01 00:00:00,1,2\n2020-13-01 00:00:00,1,2\n", "row 3, column 'date'"),
        (HEAD + "2020-01-01 00:00:00,1,2\n2020-01-02 00:00:00,x,2\n", "row 3, column 'a': 'x' is not a number"),
        (HEAD + "2020-01-01 00:00:00,1,\n2020-01-02 00:00:00,1,2\n", "row 2, column 'OT'"),
        (HEAD + "2020-01-01 00:00:00,1,inf\n", "row 2, column 'OT'"),
        (HEAD + "2020-01-02 00:00:00,1,2\n2020-01-01 00:00:00,1,2\n", "row 3, column 'date': the dates go back"),
        (HEAD + "2020-01-02 00:00:00,1,2,3,4\n", "cannot be read"),
        (HEAD, "fewer than two rows"),
    ],
)
def test_files_that_make_no_sense(cache, text, problem):
    target = cache / "forecast/ETTh1/ETTh1.csv"
    target.parent.mkdir(parents=True)
    target.write_text(text)
    with pytest.raises(DataError, match=problem):
        load_forecasting("ETTh1")


@given(
    st.binary(max_size=200) | st.text(alphabet='0123456789-:, .\n"e', max_size=200).map(lambda t: (HEAD + t).encode())
)
def test_any_contents_give_data_or_an_error_of_ours(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("data")
    target = root / "forecast/ETTh1/ETTh1.csv"
    target.parent.mkdir(parents=True)
    target.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(DataError):
        patch.setenv("CONTIFORMER_DATA", str(root))
        assert isinstance(load_forecasting("ETTh1"), SeriesSet)
