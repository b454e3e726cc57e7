"""P12, P19 and NAFLD, from a few lines in the format of each."""

import gzip
import json

import numpy as np
import pytest

from contiformer.data.catalog import clinical_split, load_clinical
from contiformer.data.errors import DataError

ADMISSION = "".join(f"{{0}},00:00,{name},50\n" for name in ("Age", "Gender", "Height", "ICUType", "Weight"))


def _write(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(gzip.compress(text.encode()))


def _p12(root):
    folder = root / "clinical" / "physionet2012"
    for number, letter in enumerate("abc", 1):
        rows = ADMISSION.format(number) + f"{number},01:00,HR,{number}0\n" + ADMISSION.format(number + 10)
        _write(folder, f"set-{letter}.csv.gz", "RecordID,Time,Parameter,Value\n" + rows)
        (folder / f"Outcomes-{letter}.txt").write_text(
            f"RecordID,In-hospital_death\n{number},{number % 2}\n{number + 10},0\n"
        )
    splits = {"split1": {"train": [3, 1], "val": [2], "test": []}}
    _write(folder, "raindrop_splits.json.gz", json.dumps(splits))
    return folder


def test_p12_joins_the_three_sets_without_empty_records(cache):
    _p12(cache)
    data = load_clinical("P12")
    assert (data.ids, data.labels) == ([1, 2, 3], [1, 0, 1])
    assert data.notes["records without a measurement"] == 3
    assert load_clinical("P12", fold=1, split="train").ids == [3, 1]
    assert clinical_split("p12", 1)["val"] == [2]


def test_parts_and_splits_that_do_not_exist(cache):
    folder = _p12(cache)
    with pytest.raises(DataError, match="no split 2"):
        load_clinical("P12", fold=2, split="train")
    with pytest.raises(DataError, match=r"no part 'dev' of split 1.*train, val, test"):
        load_clinical("P12", fold=1, split="dev")
    with pytest.raises(DataError, match="no part 'train' of split None"):
        load_clinical("P12", split="train")
    with pytest.raises(DataError, match="PhysioNet2012-A has no published split"):
        load_clinical("PhysioNet2012-A", fold=1, split="train")
    with pytest.raises(DataError, match="has no option label"):
        load_clinical("P12", label="death")
    _write(folder, "raindrop_splits.json.gz", "[1, 2]")
    with pytest.raises(DataError, match="lists of ids by split and part"):
        clinical_split("P12", 1)


def _p19(root, bad=""):
    folder = root / "clinical" / "physionet2019"
    people = "PatientID,set,Age,Gender,Unit1,Unit2,HospAdmTime,rows\n"
    people += "p1,A,83.5,0,,,-3,4\np2,A,60,1,0,1,-2,1\np3,A,60,1,0,1,,1\np4,A,60,1,0,1,-2,61\np5,B,41,0,1,0,0,1\n"
    people += "p6,B,50,0,1,0,0,2\np7,A,50,0,1,0,0,2\n"
    _write(folder, "patients.csv.gz", people)
    rows = [f"p1,{hour},{70 + hour},{bad},{int(hour > 3)}" for hour in (1, 2, 3, 4, 5)]  # cut before hour 4
    rows += ["p2,7,,98,0", "p3,1,80,,0"]  # no time of admission
    rows += [f"p4,{hour},80,,0" for hour in range(1, 62)]  # too long
    rows += ["p7,1,,,0", "p7,2,,,0"]  # no value
    head = "PatientID,ICULOS,HR,O2Sat,SepsisLabel\n"
    _write(folder, "training_setA.csv.gz", head + "\n".join(rows))
    _write(folder, "training_setB.csv.gz", head + "p5,1,,97,0\np6,1,60,,1\np6,2,61,,1\n")  # p6: nothing before


def test_p19_is_cut_before_the_first_positive_label(cache):
    _p19(cache)
    data = load_clinical("P19")
    assert (data.ids, data.labels) == (["p1", "p2", "p5"], [1, 0, 0])
    assert data.channels == ("HR", "O2Sat")
    assert data[0].times.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(data[0].values, np.array([[71, np.nan], [72, np.nan], [73, np.nan]], np.float32))
    np.testing.assert_array_equal(data[0].static, np.array([83.5, 0, np.nan, np.nan, -3], np.float32))
    assert data.schema.static == ("Age", "Gender", "Unit1", "Unit2", "HospAdmTime")
    assert (data.schema.time_unit, data.classes, data[0].values.dtype) == ("h", (0, 1), np.float32)


def test_p19_with_a_word_among_numbers(cache):
    _p19(cache, bad="high")
    with pytest.raises(DataError, match=r"training_setA\.csv\.gz, row 2, column 'O2Sat': 'high' is not a number"):
        load_clinical("P19")


def _nafld(root):
    folder = root / "clinical" / "nafld"
    people = "id,age,male,weight,height,bmi,case_id,futime,status\n1,57,0,60,163,22.7,1,100,0\n2,67,1,,,,1,50,1\n"
    _write(folder, "people.csv.gz", people + "3,40,1,80,180,24.7,1,100,1\n")
    rows = "1,-5,hdl,75\n1,-5,chol,75\n1,-5,smoke,0\n1,10,sbp,120\n1,10,dbp,120\n2,-1,hdl,40\n2,-1,hdl,60\n3,4,hdl,50\n"
    _write(folder, "measurements.csv.gz", "id,days,test,value\n" + rows)
    _write(folder, "events.csv.gz", "id,days,event\n1,30,diabetes\n2,-9,diabetes\n2,9,stroke\n")


def test_nafld_reads_what_was_measured_before_the_outcome(cache):
    _nafld(cache)
    data = load_clinical("NAFLD")
    assert (data.ids, data.labels) == ([1, 2], [0, 1])
    np.testing.assert_array_equal(data[0].values, [[np.nan, 75, np.nan, 0]])
    np.testing.assert_array_equal(data[1].values[:, 1], [50])
    np.testing.assert_array_equal(data[1].static, np.array([67, 1, np.nan, np.nan, np.nan], np.float32))
    assert data.schema.time_unit == "d"
    assert load_clinical("NAFLD", label="diabetes").labels == [1, 0]
    everything = load_clinical("NAFLD", until=None)
    assert (everything.ids, everything.lengths.tolist()) == ([1, 2, 3], [2, 1, 1])
    with pytest.raises(DataError, match=r"no event 'flu'.*diabetes, stroke"):
        load_clinical("NAFLD", label="flu")
