"""Boards: models of this library and baselines on real irregular data, beside published figures.

Boards are experiments like those of the paper: resumable cells with seed, split, configuration, machine and commit.
Models are names: a backbone or a baseline of the library; behind a colon a variant (``contiformer:static`` has static
scores and values, ``contiformer:mortality`` the options of the mortality benchmark).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from contiformer import Blend, EventPredictor, Interpolator, Regressor
from contiformer.data import EventSet, Series, SeriesSet, without_features
from contiformer.data.catalog import clinical_split, drop_points, load_clinical, load_events, load_irregular, load_uea
from reproduction import events, pendulum, uea
from reproduction.board_models import (
    BASELINES,
    BLENDED,
    RIVALS,
    SERIES_MODELS,
    absent,
    configuration_of,
    few,
    fit_classifier,
    options_of,
)
from reproduction.board_tables import by_method, by_place
from reproduction.experiments import (
    STATIC_TWIN,
    Budget,
    Cell,
    Experiment,
    Metric,
    Outcome,
    Protocol,
    configuration,
    model_options,
    not_here,
)
from reproduction.forecast_boards import (
    Kind,
    forecast_parts,
    last_values,
    overall_errors,
    per_variable_errors,
)

PREFIX = "board-"

# --- clinical ---------------------------------------------------------------------------------------------------------

#: ContiFormer by itself: the same training, without the boosted trees that it is averaged with.
NETWORK = "contiformer:network"
CLINICAL_MODELS = ("contiformer", NETWORK, "contiformer:mortality", STATIC_TWIN, *RIVALS, *BASELINES)
SPLITS = (1, 2, 3, 4, 5)


@lru_cache(maxsize=1)
def _clinical(name: str) -> SeriesSet:
    return load_clinical(name)


@lru_cache(maxsize=1)
def _clinical_parts(name: str, split: int, budget: Budget) -> tuple[SeriesSet, SeriesSet, SeriesSet]:
    whole, parts = _clinical(name), clinical_split(name, split)
    train, val, test = (few(whole.with_ids(parts[part]), budget) for part in ("train", "val", "test"))
    return train, val, test


@lru_cache(maxsize=len(BLENDED))
def _clinical_model(name: str, split: int, budget: Budget, model: str, seed: int, verbose: int) -> Any:
    """A fitted model; the last ones are kept, because the blend is made of them."""
    train, val, _ = _clinical_parts(name, split, budget)
    return fit_classifier(model, train, val, seed, budget, verbose)


def _clinical_grid(protocol: Protocol) -> list[Cell]:
    return [
        Cell(f"{PREFIX}clinical", data, f"split{fold}", model, 0, protocol)
        for fold in SPLITS
        for data in ("P12", "P19")
        for model in CLINICAL_MODELS
    ]


def run_clinical(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """Train on the train part of a published split, choose by its validation part, judge once by its test part."""
    place = (cell.data, int(cell.setting.removeprefix("split")), budget)
    train, val, test = _clinical_parts(*place)
    model: Any
    if cell.model == "blend":
        model = Blend.of_fitted([_clinical_model(*place, name, cell.seed, verbose) for name in BLENDED], val)
    elif cell.model == NETWORK:
        model = deepcopy(_clinical_model(*place, "contiformer", cell.seed, verbose))
        for task in model.tasks_:
            if task.beside is not None:
                task.share.zero_()
    else:
        model = _clinical_model(*place, cell.model, cell.seed, verbose)
    scores = model.evaluate(test)
    metrics = {name: 100 * scores[name] for name in ("auroc", "average_precision")}
    return Outcome(metrics, configuration_of(model), {"sizes": [len(train), len(val), len(test)]})


CLINICAL = Experiment(
    name=f"{PREFIX}clinical",
    title="Clinical records: mortality in intensive care (P12) and sepsis (P19), five published splits",
    metrics=(
        Metric("auroc", "AUROC, %", "max", ".2f"),
        Metric("average_precision", "AUPRC, %", "max", ".2f"),
    ),
    grid=_clinical_grid,
    run=run_clinical,
    # 2: leaves of boosting by the number of series, twelve statistics at the head, defaults for gaps
    # 3: boosted trees beside the network
    version=3,
    absent=absent,
    repeats=True,
    sheets=by_method,
    note=(
        "Inputs differ: our models and the practitioner's line read the raw records with static columns, the "
        "published ones a preprocessed form of 36 variables whose static vector is wrong for 279 records. The options "
        "of contiformer:mortality were chosen by folds of set A, whose records are in all five splits of P12. With the "
        "defaults of `Classifier` networks are averaged with boosted trees (`beside='boosting'`); "
        "contiformer:network is contiformer without the trees."
    ),
)

# --- irregular and uea ------------------------------------------------------------------------------------------------

ARCHIVE = (
    "PickupGestureWiimoteZ",
    "DodgerLoopGame",
    "DodgerLoopDay",
    "GestureMidAirD1",
    "GesturePebbleZ1",
    "AllGestureWiimoteX",
    "MelbournePedestrian",
    "PLAID",
)
NOT_COLLECTED = (
    "AllGestureWiimoteY",
    "AllGestureWiimoteZ",
    "DodgerLoopWeekend",
    "GestureMidAirD2",
    "GestureMidAirD3",
    "GesturePebbleZ2",
    "ShakeGestureWiimoteZ",
)
FOLDED = ("Animals", "GoTrack", "Vehicles")
HOLDOUT = "Vehicles-holdout70"
SEEDS = (0, 1, 2)


def _irregular_grid(protocol: Protocol) -> list[Cell]:
    table = f"{PREFIX}irregular"
    places = [(data, "given", seed) for seed in SEEDS for data in (*ARCHIVE, HOLDOUT, *NOT_COLLECTED)]
    places += [(data, f"fold{fold}", 0) for fold in range(1, 6) for data in FOLDED]
    return [Cell(table, *place, protocol) for place in _with_models(places, SERIES_MODELS)]


def _with_models(places: Sequence[tuple[str, str, int]], models: Sequence[str]) -> list[tuple[str, str, str, int]]:
    return [(data, setting, model, seed) for data, setting, seed in places for model in models]


def _set_name(name: str) -> str:
    return name.partition("-")[0] if name == HOLDOUT else name


def run_irregular(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """A classifier with its defaults on the given split or on a fold; validation data come from the training part."""
    fold = int(cell.setting.removeprefix("fold")) if cell.setting.startswith("fold") else None
    parts = [load_irregular(_set_name(cell.data), split=split, fold=fold) for split in ("train", "test")]
    return _classified(cell, parts[0], parts[1], budget, verbose)


def _classified(cell: Cell, train: SeriesSet, test: SeriesSet, budget: Budget, verbose: int) -> Outcome:
    train, test = few(train, budget), few(test, budget)
    model = fit_classifier(cell.model, train, None, cell.seed, budget, verbose)
    right = np.asarray(model.predict(test)) == np.array(test.labels)
    details = {"sizes": [len(train), len(test)], "wrong": np.flatnonzero(~right).tolist()}
    return Outcome({"accuracy": float(right.mean())}, configuration_of(model), details)


IRREGULAR = Experiment(
    name=f"{PREFIX}irregular",
    title="Irregular series: unequal lengths, gaps, real time stamps",
    metrics=(Metric("accuracy", "accuracy", "max"),),
    grid=_irregular_grid,
    run=run_irregular,
    version=2,
    absent=partial(absent, data=_set_name),
    repeats=True,
    sheets=by_place,
    note=(
        "The archive's sets: given split, three seeds. Animals, GoTrack, Vehicles: five folds, one seed; "
        f"{HOLDOUT}: the published 70/30 split. MiniRocket reads series stretched to one length, our models the series "
        "as they are. In contiformer:rocket series that share a window of time also share one clock."
    ),
)

UEA_DATA = tuple(dict.fromkeys(data for data, _ in uea.minirocket_accuracies()))


def _uea_grid(protocol: Protocol) -> list[Cell]:
    places = [(data, f"drop{drop}", seed) for seed in SEEDS for drop in uea.DROPS for data in UEA_DATA]
    return [Cell(f"{PREFIX}uea", *place, protocol) for place in _with_models(places, SERIES_MODELS)]


def run_uea(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """The protocol of the paper's table: the same points dropped for every model, the official split."""
    drop = int(cell.setting.removeprefix("drop")) / 100
    train, test = (drop_points(load_uea(cell.data, part), drop, cell.seed) for part in ("train", "test"))
    return _classified(cell, train, test, budget, verbose)


UEA = Experiment(
    name=f"{PREFIX}uea",
    title="UEA archive with 30, 50 and 70 % of the points dropped: the 24 cells that MiniRocket has",
    metrics=(Metric("accuracy", "accuracy", "max"),),
    grid=_uea_grid,
    run=run_uea,
    version=uea.VERSION,
    absent=absent,
    # rivals' trainings are those of the paper's table; ContiFormer is run anew with the defaults of today
    twins=lambda cell: [replace(cell, table="uea")] if cell.model in (*RIVALS, STATIC_TWIN) else [],
    sheets=by_place,
    note=(
        "MiniRocket reads the series interpolated back to the full grid, with other points dropped than ours. In "
        "contiformer:rocket the series also share one clock; in contiformer each begins at time 0."
    ),
)

# --- a label at each time ---------------------------------------------------------------------------------------------

RFID_MODELS = ("contiformer", STATIC_TWIN, "transformer", "mtan", "s5", "gru_d", "boosting")
#: Readings of a piece: trials have up to 4,638.
PIECE = 256


def _rfid_grid(protocol: Protocol) -> list[Cell]:
    places = [("RFID", f"fold{fold}", 0) for fold in range(1, 6)]
    return [Cell(f"{PREFIX}rfid", *place, protocol) for place in _with_models(places, RFID_MODELS)]


def pieces(data: SeriesSet, size: int = PIECE) -> SeriesSet:
    """Every series in pieces of at most so many readings, with the targets at their times."""
    cut = []
    for one in data:
        for n in range(0, len(one), size):
            part = slice(n, n + size)
            assert one.target_values is not None
            piece = replace(one.points(part), target_times=one.times[part], target_values=one.target_values[part])
            cut.append(replace(piece, id=f"{one.id}/{n // size}"))
    return SeriesSet(cut, schema=data.schema)


def readings(data: SeriesSet, before: int = 2) -> np.ndarray:
    """A row for each reading: its channels, those of the readings before it with the time since, static columns."""
    rows = []
    for one in data:
        parts = [one.values, np.tile(one.static, (len(one), 1)) if one.static is not None else one.values[:, :0]]
        for lag in range(1, before + 1):
            shifted = np.full_like(one.values, np.nan)
            since = np.full((len(one), 1), np.nan)
            shifted[lag:], since[lag:, 0] = one.values[:-lag], one.times[lag:] - one.times[:-lag]
            parts += [shifted, since]
        rows.append(np.concatenate(parts, axis=1))
    return np.concatenate(rows)


def _activities(data: SeriesSet) -> np.ndarray:
    return np.concatenate([one.target_values.argmax(1) for one in data if one.target_values is not None])


def run_rfid(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """Activity at each reading: the largest of four regressed indicators, or boosting on each reading by itself."""
    fold = int(cell.setting.removeprefix("fold"))
    train, test = (load_irregular("RFID", split=split, fold=fold) for split in ("train", "test"))
    if budget == "quick":
        train, test = (part.map(lambda one: _beginning(one, 64)) for part in (train[:6], test[:4]))
    truth = _activities(test)
    if cell.model == "boosting":
        trees = HistGradientBoostingClassifier(max_iter=20 if budget == "quick" else 200, random_state=cell.seed)
        said = trees.fit(readings(train), _activities(train)).predict(readings(test))
        used: dict[str, Any] = {"model": repr(trees), "features": "reading, two before it, times since"}
    else:
        model = Regressor.from_options(**options_of(cell.model, budget), seed=cell.seed, verbose=verbose)
        model.fit(pieces(train)).require_complete()
        asked = pieces(test)
        answers = model.predict(asked, at=[one.target_times for one in asked])
        said = np.concatenate([one.values.argmax(1) for one in answers])
        used = configuration_of(model)
    return Outcome(
        {"accuracy": float((said == truth).mean()), "macro_f1": _macro_f1(said, truth)}, used, {"readings": len(truth)}
    )


def _beginning(one: Series, size: int) -> Series:
    assert one.target_values is not None
    part = slice(size)
    return replace(one.points(part), target_times=one.times[part], target_values=one.target_values[part])


def _macro_f1(said: np.ndarray, truth: np.ndarray) -> float:
    """Mean over the classes that occur of 2 TP / (2 TP + FP + FN)."""
    scores = [2 * ((said == k) & (truth == k)).sum() / ((said == k).sum() + (truth == k).sum()) for k in set(truth)]
    return float(np.mean(scores))


RFID = Experiment(
    name=f"{PREFIX}rfid",
    title="RFID: the activity of older people at each reading of a tag, five folds of trials",
    metrics=(Metric("accuracy", "accuracy per reading", "max"), Metric("macro_f1", "macro F1", "max")),
    grid=_rfid_grid,
    run=run_rfid,
    absent=lambda cell: not_here(cell) if cell.model == "boosting" else absent(cell),
    repeats=True,
    sheets=by_method,
    note=(
        f"Series models regress four indicators on pieces of {PIECE} readings and see the whole piece, also what "
        "follows a reading; boosting sees a reading and the two before it. Persons are not named: one may be in train "
        "and test."
    ),
)

# --- events -----------------------------------------------------------------------------------------------------------

EVENT_DATA = (
    "MIMIC-II",
    "Neonate",
    "Yelp",
    "Twitter",
    "Synthetic",
    "Taxi",
    "SanJacinto",
    "Reddit",
    "StackOverflow",
    "BookOrder",
)
EVENT_RIVALS = ("rmtpp", "nhp", "sahp", "thp", "gru_dt:hazard", "ode_rnn", "mtan")
EVENT_MODELS = ("contiformer", STATIC_TWIN, "poisson", "renewal", "hp", *EVENT_RIVALS)
#: Events to predict from all before them.
AHEAD = 10
#: Sequences of these sets are cut into ones of so many events.
CHUNK, CHUNKED = 256, ("SanJacinto", "Reddit")


def _events_grid(protocol: Protocol) -> list[Cell]:
    table = f"{PREFIX}events"
    of_each = {data: events.repeats(data) for data in EVENT_DATA}
    places = [
        (data, f"fold{pairs[n][0]}", pairs[n][1])
        for n in range(max(map(len, of_each.values())))
        for data, pairs in of_each.items()
        if n < len(pairs)
    ]
    return [Cell(table, *place, protocol) for place in _with_models(places, EVENT_MODELS)]


@lru_cache(maxsize=1)
def event_parts(name: str, fold: int) -> tuple[EventSet, EventSet, EventSet]:
    """Train, dev and test as models see them: times and types, sequences of two events or more."""
    found = []
    for split in ("train", "dev", "test"):
        how = {"chunk": CHUNK} if name == "SanJacinto" else {}
        part = load_events(name, fold=fold, split=split, **how).map(without_features)
        if name in CHUNKED:
            part = _chunks(part)
        found.append(part.select(np.flatnonzero(part.lengths > 1)))
    return found[0], found[1], found[2]


def _chunks(data: EventSet) -> EventSet:
    cut = [one.events(slice(n, n + CHUNK)) for one in data for n in range(0, len(one), CHUNK)]
    return EventSet(cut, num_types=data.num_types, type_names=data.type_names, notes=data.notes)


def run_events(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """Log-likelihood per event, type and time of the next event, and the next ten events."""
    train, dev, test = (few(part, budget) for part in event_parts(cell.data, int(cell.setting.removeprefix("fold"))))
    options, intensity = model_options(cell.model)
    options |= {"intensity": intensity[0] if intensity else "auto", **(events.QUICK if budget == "quick" else {})}
    model = EventPredictor.from_options(**options, seed=cell.seed, verbose=verbose)
    model.fit(train, validation_data=dev).require_complete()
    scores = model.evaluate(test[:8] if budget == "quick" else test, ahead=AHEAD, seed=cell.seed)
    metrics = {metric.key: scores[metric.key] for metric in EVENTS.metrics if metric.key in scores}
    details = {"sizes": [len(train), len(dev), len(test)], "horizon_sequences": scores.get("ahead_sequences", 0)}
    return Outcome(metrics, configuration(model), details)


EVENTS = Experiment(
    name=f"{PREFIX}events",
    title="Events: log-likelihood, type and time of the next event, and the next ten events",
    metrics=(
        *events.METRICS,
        Metric("otd", "transport distance of the next 10", "min", ".3f"),
        Metric("tmap", "T-mAP of the next 10", "max"),
    ),
    grid=_events_grid,
    run=run_events,
    absent=not_here,
    repeats=True,
    sheets=by_place,
    note=(
        "Log-likelihood per event, of events after the first one, without the stretch after the last. Transport "
        "distance and T-mAP: the last 10 events of a sequence predicted from all before; in mean gaps of the training "
        f"part, an insertion or deletion costs 1, and delta is 1. {' and '.join(CHUNKED)}: sequences of {CHUNK} events."
    ),
)

# --- forecasting and pendulum -----------------------------------------------------------------------------------------

FORECAST_MODELS = ("contiformer", STATIC_TWIN, "transformer", "mtan", "gru_d", "s5", "last value")


def _forecast_grid(kind: Kind, protocol: Protocol) -> list[Cell]:
    table = f"{PREFIX}forecast-{kind.lower()}"
    return [
        Cell(table, "P12", "published", model, seed, protocol)
        for seed in SEEDS
        for model in FORECAST_MODELS
        if not (model == "last value" and seed)
    ]


def run_forecast(kind: Kind, cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """Values at the times that are asked for, from those before; trained by the mean squared error."""
    train, val, test = (few(part, budget) for part in forecast_parts(kind))
    judge = per_variable_errors if kind == "T" else overall_errors
    sizes = {"sizes": [len(train), len(val), len(test)]}
    if cell.model == "last value":
        return Outcome(judge(last_values(test), test), {"model": cell.model}, sizes)
    train, val = (part.select([n for n, one in enumerate(part) if _usable(one)]) for part in (train, val))
    model = Interpolator.from_options(**options_of(cell.model, budget), law="point", seed=cell.seed, verbose=verbose)
    model.fit(train, validation_data=val).require_complete()
    said = last_values(test)
    asked = [n for n, one in enumerate(test) if _usable(one)]
    some = test.select(asked)
    answers = model.predict(some, at=[one.target_times for one in some])
    for n, answer in zip(asked, answers, strict=True):
        said[n] = np.asarray(answer.values)
    return Outcome(judge(said, test), configuration(model), sizes)


def _usable(one: Series) -> bool:
    """Whether there is something to go by and something to predict."""
    return bool(len(one)) and one.target_values is not None and bool((~np.isnan(one.target_values)).any())


def _forecast(kind: Kind, title: str, form: str, note: str) -> Experiment:
    return Experiment(
        name=f"{PREFIX}forecast-{kind.lower()}",
        title=title,
        metrics=(Metric("mse", "MSE", "min", form), Metric("mae", "MAE", "min", form)),
        grid=partial(_forecast_grid, kind),
        run=partial(run_forecast, kind),
        absent=lambda cell: not_here(cell) if cell.model == "last value" else absent(cell),
        sheets=by_method,
        note=note,
    )


FORECAST_T = _forecast(
    "T",
    "Forecasting PhysioNet 2012 by t-PatchGNN's protocol: 24 hours, then the next 24",
    ".5f",
    "Protocol T only; figures of protocol P are of other units and must not be compared with these. Records are "
    "ordered by id, the published code takes them as its file system lists them, so that its test part is another "
    "fifth. Our models read the descriptors as static columns.",
)
FORECAST_P = _forecast(
    "P",
    "Forecasting PhysioNet 2012 by PyOmniTS' protocol: 36 hours, then the next 3 hourly rows",
    ".4f",
    "Protocol P only. Values are standardised over all records, the test part included, as in the published code; "
    "records are ordered by id within the sets A, B and C, the published ones as their archives list them.",
)


def _pendulum_grid(protocol: Protocol) -> list[Cell]:
    return [replace(cell, table=f"{PREFIX}pendulum") for cell in pendulum.grid(protocol)]


PENDULUM = replace(
    pendulum.EXPERIMENT,
    name=f"{PREFIX}pendulum",
    grid=_pendulum_grid,
    twins=lambda cell: [replace(cell, table="pendulum")],
    sheets=by_method,
    protocols=("honest",),
    note="Generated data: the published figures are of other draws from the same generator.",
)
