"""Cohorts in tables: sepsis in intensive care (P19) and fatty liver disease (NAFLD)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from contiformer.data.catalog.registry import DatasetInfo
from contiformer.data.catalog.storage import require_file
from contiformer.data.errors import DataError, naming_file
from contiformer.data.files import read_bytes
from contiformer.data.readers.columns import Place, numbers, pick
from contiformer.data.readers.csv import read_table, table
from contiformer.data.readers.frames import from_frame
from contiformer.data.series_set import SeriesSet

#: Patients of P19 have at least one and at most so many hours before the label.
MOST_HOURS = 60
SEPSIS_STATIC = ("Age", "Gender", "Unit1", "Unit2", "HospAdmTime")
NAFLD_STATIC = ("age", "male", "weight", "height", "bmi")
#: The tests of NAFLD. Its columns chol and dbp repeat hdl and sbp value by value, and are left out.
NAFLD_TESTS = ("fib4", "hdl", "sbp", "smoke")


def load_sepsis(info: DatasetInfo) -> SeriesSet:
    """P19: hourly records of 38,803 patients, labelled 1 if sepsis follows.

    A series is the hours of a patient before the first positive ``SepsisLabel``, times in hours of the stay
    (``ICULOS``), 34 channels (float32). Kept are patients with 1 to 60 such hours, any value among them and a time of
    admission, as in the published splits; order: set A, then B, by id.
    """
    people = _columns(require_file(info, f"{info.folder}/patients.csv.gz"), "PatientID", SEPSIS_STATIC)
    hours = []
    for letter in "AB":
        path = require_file(info, f"{info.folder}/training_set{letter}.csv.gz")
        rows = _columns(path, "PatientID")
        septic = pl.col("SepsisLabel") > 0
        measured = pl.any_horizontal(pl.exclude("PatientID", "ICULOS", "SepsisLabel").is_not_nan())
        onset = pl.when(septic).then(pl.col("ICULOS")).min().fill_null(np.inf)
        patients = rows.group_by("PatientID").agg(
            measured=measured.any(),
            label=septic.any().cast(pl.Int64),
            onset=onset,
            hours=(pl.col("ICULOS") < onset).sum(),
        )
        kept = patients.filter(pl.col("measured") & (pl.col("hours") <= MOST_HOURS)).drop("measured", "hours")
        rows = rows.drop("SepsisLabel").join(kept, on="PatientID", how="inner", maintain_order="left")
        hours.append(rows.filter(pl.col("ICULOS") < pl.col("onset")).drop("onset"))
    known = people.filter(pl.col("HospAdmTime").is_not_nan())
    rows = pl.concat(hours).join(known, on="PatientID", how="inner", maintain_order="left")
    data = from_frame(rows, id="PatientID", time="ICULOS", label="label", static=SEPSIS_STATIC, order="appearance")
    return _in_unit(data, "h")


def load_nafld(info: DatasetInfo, label: str = "death", until: float | None = 0.0) -> SeriesSet:
    """NAFLD: laboratory values of people with fatty liver disease and of matched controls, labelled by what follows.

    A series is a person with any measurement: times in days from the index date, four channels (fib4, hdl, sbp, smoke)
    and five static features.

    Args:
        label: ``death`` (label 1: the person died during follow-up), or one of the events, such as ``diabetes`` (label
            1: it occurs after the day ``until``).
        until: the last day whose measurements are taken, so that the outcome lies ahead; None: all of them, for
            forecasting and interpolation.
    """
    folder = info.folder
    people = _columns(require_file(info, f"{folder}/people.csv.gz"), "id", (*NAFLD_STATIC, "status"), pl.Int64)
    path = require_file(info, f"{folder}/events.csv.gz")
    events, place = read_table(path, "id")
    kinds = pick(events, "event", place).unique().sort().to_list()
    if label == "death":
        outcome = pl.col("status") == 1
    elif label in kinds:
        later = numbers(pick(events, "days", place), place) > (-np.inf if until is None else until)
        outcome = pl.col("id").is_in(events.filter((events["event"] == label) & pl.Series(later))["id"].implode())
    else:
        raise DataError(f"NAFLD has no event {label!r}", remedy=f"pass 'death' or one of {', '.join(kinds)}")
    people = people.with_columns(label=outcome.cast(pl.Int64)).drop("status")
    path = require_file(info, f"{folder}/measurements.csv.gz")
    with naming_file(path):
        rows, place = read_table(path, "id")
        days = numbers(pick(rows, "days", place), place)
        wanted = days <= (np.inf if until is None else until)
        real = pl.col("test").is_in(NAFLD_TESTS)
        rows = rows.filter(pl.Series(wanted) & real).join(people, on="id", how="inner", maintain_order="left")
        data = from_frame(
            rows,
            id="id",
            time="days",
            variable="test",
            value="value",
            channels=NAFLD_TESTS,
            label="label",
            static=NAFLD_STATIC,
            duplicates="mean",
        )
    return _in_unit(data, "d")


def _columns(path: Path, id: str, names: tuple[str, ...] = (), kind: type[pl.DataType] = pl.String) -> pl.DataFrame:
    """A table of ids and of numbers as float32, NaN where empty; ``names`` are the columns to take, by default all."""
    data = read_bytes(path)
    header = data.split(b"\n", 1)[0].decode("utf-8", "replace").strip().split(",")
    wanted = names or tuple(name for name in header if name != id)
    # types are given, so that polars reads the text once
    found = table(data, path, ",", {id: kind, **dict.fromkeys(wanted, pl.Float32)}, first_row=2)
    place = Place(path, 2)
    ids = pick(found, id, place)
    return pl.DataFrame([ids, *(pl.Series(name, _narrow(pick(found, name, place), place)) for name in wanted)])


def _narrow(column: pl.Series, place: Place) -> NDArray[np.float32]:
    return numbers(column, place).astype(np.float32, copy=False)


def _in_unit(data: SeriesSet, unit: str) -> SeriesSet:
    return data.described(replace(data.schema, time_unit=unit))
