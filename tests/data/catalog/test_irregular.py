"""Irregular classification sets, from a few lines in the format of each."""

import gzip
import json

import numpy as np
import pytest

from contiformer.data.catalog import DATASETS, load_events, load_irregular, observation_windows
from contiformer.data.errors import DataError


def _write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def test_a_set_of_the_archive_with_gaps(cache):
    text = "@problemName PLAID\n@missing true\n@classLabel true 1 2\n@data\n1,?,3:1\n4,5:2\n"
    for part in ("TRAIN", "TEST"):
        _write(cache, f"irregular/PLAID/PLAID_{part}.ts.gz", text)
    data = load_irregular("PLAID", split="test")
    assert (data.ids, data.labels, data.lengths.tolist()) == (["test/0", "test/1"], ["1", "2"], [3, 2])
    np.testing.assert_array_equal(data[0].values[:, 0], [1, np.nan, 3])
    assert len(load_irregular("PLAID")) == 2
    with pytest.raises(DataError, match="has no folds"):
        load_irregular("PLAID", fold=1)
    with pytest.raises(DataError, match="no part 'dev'"):
        load_irregular("PLAID", split="dev")


@pytest.mark.parametrize("name", ["AllGestureWiimoteY", "DodgerLoopWeekend", "GestureMidAirD3", "ShakeGestureWiimoteZ"])
def test_sets_of_the_archive_are_known_without_their_files(name):
    assert DATASETS[name].sources
    with pytest.raises(DataError, match=f"contiformer datasets download {name}"):
        load_irregular(name)


def _trajectories(root, name, columns, splits):
    rows = "1,0,1.5,2,bus\n1,30,1.6,3,bus\n2,0,1,1,car\n2,0,3,1,car\n3,4,9,9,car\n"
    _write(root, f"irregular/{name}/{name}.csv.gz", f"id,time,{columns},label\n{rows}")
    _write(root, f"irregular/{name}/splits.json", json.dumps(splits))


FOLDS = [{"train": [1, 2], "test": [3]}, {"train": [3, 2], "test": [1]}]


def test_trajectories_with_a_split_and_folds(cache):
    _trajectories(cache, "Vehicles", "y,x", {"folds_own_seed0": FOLDS, "holdout70_published": FOLDS[1]})
    data = load_irregular("Vehicles")
    assert (data.ids, data.labels, data.channels) == ([1, 2, 3], ["bus", "car", "car"], ("y", "x"))
    np.testing.assert_array_equal(data[1].values, [[2, 1]])
    assert data.schema.time_unit == "s"
    assert load_irregular("Vehicles", split="train").ids == [3, 2]
    assert load_irregular("Vehicles", split="test", fold=1).ids == [3]
    with pytest.raises(DataError, match="split= is missing"):
        load_irregular("Vehicles", fold=1)
    with pytest.raises(DataError, match=r"no fold 3.*1 to 2"):
        load_irregular("Vehicles", split="test", fold=3)


def test_gotrack_uses_the_folds_that_keep_duplicates_together(cache):
    rows = {"folds_own_seed0": FOLDS, "folds_published": [{"train": [3], "test": [2]}]}
    _trajectories(cache, "GoTrack", "lat,lon", rows)
    assert load_irregular("GoTrack", split="test", fold=1).ids == [3]
    with pytest.raises(DataError, match="no single split"):
        load_irregular("GoTrack", split="test")
    _write(cache, "irregular/GoTrack/splits.json", "{}")
    with pytest.raises(DataError, match="lists of ids"):
        load_irregular("GoTrack", split="test", fold=1)


def test_rfid_has_a_target_at_each_reading(cache):
    head = "id,sex,time,acc_frontal,acc_vertical,acc_lateral,antenna,rssi,phase,frequency,label\n"
    rows = "a,M,0,0.2,1,0,1,-63,2,924,1\na,M,0.5,0.3,1,0,3,-60,2,921,4\nb,F,0,0,0,0,2,-1,1,920,2\n"
    _write(cache, "irregular/rfid_older_people/rfid_s1.csv.gz", head + rows)
    data = load_irregular("RFID")
    assert data.channels[3:7] == ("antenna=1", "antenna=2", "antenna=3", "antenna=4")
    np.testing.assert_array_equal(data[0].target_values, [[1, 0, 0, 0], [0, 0, 0, 1]])
    np.testing.assert_array_equal(data[0].target_times, [0, 0.5])
    assert [one.static.tolist() for one in data] == [[0], [1]]
    _write(cache, "irregular/rfid_older_people/rfid_s1.csv.gz", head + rows.replace("921,4", "921,7"))
    with pytest.raises(DataError, match=r"rfid_s1\.csv\.gz, row 3, column 'label': is no activity"):
        load_irregular("RFID")


def test_earthquakes_have_magnitudes_and_a_part_before_training(cache):
    lines = [
        {"times": [0.5, 2.0], "types": [0, 0], "num_types": 1, "split": "aux", "t_start": 0, "t_max": 3},
        {"times": [3.5, 4.0, 5.0], "types": [0, 0, 0], "num_types": 1, "split": "train", "t_start": 3, "t_max": 6},
    ]
    for line in lines:
        line["magnitudes"] = [1.0 + n for n in range(len(line["times"]))]
    _write(cache, "tpp/earthquake_sanjac/sanjac.jsonl.gz", "\n".join(map(json.dumps, lines)))
    (aux,) = load_events("SanJacinto", split="aux")
    assert aux.features.tolist() == [[1.0], [2.0]]
    assert observation_windows("SanJacinto") == [(3.0, 6.0)]
    assert load_events("SanJacinto", chunk=2).lengths.tolist() == [2, 1]
    with pytest.raises(DataError, match="no part 'aux'"):
        load_events("Reddit", split="aux")
