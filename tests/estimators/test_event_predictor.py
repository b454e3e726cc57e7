"""EventPredictor: input and output forms, saving, likelihood, prediction, sampling, streams and errors."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats

from contiformer import EventPredictor, TrainingOptions
from contiformer.data.errors import DataError
from contiformer.data.events import EventSequence, EventSet
from contiformer.data.synthetic import hawkes_set
from contiformer.estimators.event_stream import one_step_ahead

TINY = {"d_model": 8, "n_layers": 1, "max_epochs": 2, "min_steps": 0, "verbose": 0}
COLUMNS = {"id": "who", "time": "t", "type": "what"}
#: A backbone and an intensity of each kind.
KINDS = {
    "hazard": ("contiformer", "hazard"),
    "thp": ("contiformer", "thp"),
    "thp-elapsed": ("thp", "thp-elapsed"),
    "sahp": ("sahp", "auto"),
    "rmtpp": ("rmtpp", "auto"),
    "nhp": ("nhp", "auto"),
    "hp": ("hp", "auto"),
    "renewal": ("renewal", "auto"),
    "continuous": ("contiformer", "continuous"),
}


def _sequences(n=8, length=16):
    return [(one.times[:length], one.types[:length]) for one in hawkes_set(n, seed=3)]


def _table(X, names=("buy", "sell")):
    return pl.DataFrame(
        {
            "who": [f"c{n}" for n, (times, _) in enumerate(X) for _ in times],
            "t": [float(t) for times, _ in X for t in times],
            "what": [names[k] for _, types in X for k in types],
        }
    )


def _dated(frame):
    return frame.with_columns(
        t=pl.lit(dt.datetime(2024, 1, 1)) + pl.duration(microseconds=(pl.col("t") * 3.6e9).round())
    )


@pytest.fixture(scope="module")
def X():
    return _sequences()


@pytest.fixture(scope="module")
def models(X):
    """One of each kind, trained for a moment; made when they are asked for."""
    made = {}

    def get(kind):
        if kind not in made:
            backbone, intensity = KINDS[kind]
            # every event's own history is a pass of its own there
            seen = [(times[:8], types[:8]) for times, types in X[:4]] if kind == "continuous" else X
            made[kind] = EventPredictor.from_options(backbone=backbone, intensity=intensity, **TINY).fit(seen)
        return made[kind]

    return get


def test_all_forms_of_input_give_the_same_numbers(X):
    frame = _table(X)
    model = EventPredictor.from_options(**TINY).fit(frame, **COLUMNS)
    assert model.type_names_ == ("buy", "sell")
    expected = model.predict_next(frame)
    assert expected.columns == ["who", "last_time", "expected_time", "median_time", "type", "probability"]
    assert expected["who"].to_list() == sorted(f"c{n}" for n in range(len(X)))
    for other in (
        X,
        EventSet([EventSequence.of(*one) for one in X]),
        frame.lazy(),
        frame.sample(fraction=1, shuffle=True),
    ):
        found = model.predict_next(other).sort("last_time")
        assert np.allclose(found["expected_time"], expected.sort("last_time")["expected_time"])
    by_id = dict(model.log_likelihood(frame).iter_rows())
    assert np.allclose(model.log_likelihood(X), [by_id[f"c{n}"] for n in range(len(X))])
    assert model.score(X) == pytest.approx(model.evaluate(frame)["log_likelihood"])


def test_pandas_input_gives_pandas_output(X):
    frame = pd.DataFrame(_table(X).to_dict(as_series=False))
    model = EventPredictor.from_options(**TINY).fit(frame, **COLUMNS)
    for found in (model.predict_next(frame), model.predict_ahead(frame, 2, draws=4)):
        assert isinstance(found, pd.DataFrame)
        assert set(found["type"]) <= {"buy", "sell"}
    dates = frame.assign(t=pd.Timestamp("2024-01-01") + pd.to_timedelta(frame["t"], unit="h"))
    model = EventPredictor.from_options(**TINY).fit(dates, **COLUMNS)
    assert model.predict_next(dates)["expected_time"].dtype.kind == "M"


def test_dates_give_the_same_predictions_as_numeric_times(X):
    frame = _table(X)
    by_hour = EventPredictor.from_options(**TINY).fit(frame, **COLUMNS)
    by_date = EventPredictor.from_options(**TINY).fit(_dated(frame), **COLUMNS)
    hours, dates = by_hour.predict_next(frame), by_date.predict_next(_dated(frame))
    assert dates.schema["expected_time"] == pl.Datetime("us")
    gone = (dates["expected_time"] - dt.datetime(2024, 1, 1)).dt.total_microseconds() / 3.6e9
    assert np.allclose(gone, hours["expected_time"], rtol=1e-4)
    # a density per second is one per hour divided by 3600
    assert by_date.score(_dated(frame)) == pytest.approx(by_hour.score(frame) - np.log(3600), abs=1e-4)
    assert by_date.predict_ahead(_dated(frame), 1, draws=3).schema["time"] == pl.Datetime("us")
    as_words = _dated(frame).with_columns(pl.col("t").dt.to_string("%Y-%m-%dT%H:%M:%S%.6f"))
    assert by_date.score(as_words) == pytest.approx(by_date.score(_dated(frame)))
    with pytest.raises(DataError, match="times of X are numbers; the model was trained on dates"):
        by_date.predict_next(frame)


def test_types_are_matched_by_name(X):
    model = EventPredictor.from_options(**TINY).fit(_table(X), **COLUMNS)
    turned = EventSet([EventSequence.of(times, 1 - types) for times, types in X], type_names=("sell", "buy"))
    assert np.allclose(model.log_likelihood(turned), model.log_likelihood(X))
    numbered = _table(X, names=(7, 12))
    assert EventPredictor.from_options(**TINY).fit(numbered, **COLUMNS).type_names_ == ("7", "12")
    as_floats = numbered.with_columns(pl.col("what").cast(pl.Float64))
    assert EventPredictor.from_options(**TINY).fit(as_floats, **COLUMNS).type_names_ == ("7", "12")


@pytest.mark.parametrize("kind", ["hazard", "hp", "nhp", "continuous"])
def test_a_loaded_model_gives_the_same_answers(kind, models, X, tmp_path):
    model = models(kind)
    model.save(tmp_path)
    again = EventPredictor.load(tmp_path)
    assert again.predict_next(X[:2]).equals(model.predict_next(X[:2]))
    assert np.array_equal(again.log_likelihood(X[:3]), model.log_likelihood(X[:3]))
    assert again.type_names_ == model.type_names_
    assert again.get_params()["d_model"] == 8


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_unit_exponential_residuals(kind, models, X):
    """Time rescaling: Kolmogorov and Smirnov's test does not tell them from the law, by a fixed seed."""
    model = models(kind)
    history = EventSequence.of(X[0][0][:5], X[0][1][:5])
    drawn = model.sample(history, n=5 if kind == "continuous" else 10, draws=30, seed=1)
    whole = [
        EventSequence(np.concatenate([history.times, one.times]), np.concatenate([history.types, one.types]))
        for one in drawn
    ]
    residuals = model.residuals(whole).reshape(len(whole), -1)[:, 4:].ravel()
    assert stats.kstest(residuals, "expon").pvalue > 0.01


def test_samples_end_after_n_events_or_at_until(models, X):
    model = models("thp")
    history = EventSequence.of(*X[0])
    last = history.times[-1]
    assert [len(one) for one in model.sample(history, n=3, draws=4)] == [3] * 4
    assert [len(one) for one in model.sample(history, n=0)] == [0]
    for one in model.sample(history, until=last + 5, draws=8):
        assert not len(one) or (last <= one.times[0] <= one.times[-1] <= last + 5)
        assert (np.diff(one.times) >= 0).all()
    assert model.sample(history, n=3, seed=5) == model.sample(history, n=3, seed=5)
    assert model.sample(history, n=3, seed=5) != model.sample(history, n=3, seed=6)
    counts = [len(one) for one in model.sample(history, until=last)]
    assert counts == [0]
    for wrong, said in (
        ({}, "until= .* or n="),
        ({"until": 99.0, "n": 2}, "until= .* or n="),
        ({"n": -1}, "n not negative"),
        ({"n": 1, "draws": 0}, "draws must be positive"),
        ({"until": last - 1}, "until must be a time after the last event"),
    ):
        with pytest.raises(ValueError, match=said):
            model.sample(history, **wrong)


def test_predicted_steps_are_ordered_in_time(models, X):
    found = models("hazard").predict_ahead(X[:2], 3, draws=20)
    assert found.columns == ["id", "step", "time", "time_q0.05", "time_q0.95", "type"]
    assert found["step"].to_list() == [1, 2, 3] * 2
    assert (found["time_q0.05"] <= found["time"]).all()
    assert (found["time"] <= found["time_q0.95"]).all()
    first = found.filter(pl.col("id") == 0)["time"]
    assert (first.diff().drop_nulls() >= 0).all()
    assert first[0] >= X[0][0][-1]


@pytest.mark.parametrize("kind", ["hazard", "thp", "nhp", "continuous"])
def test_a_stream_gives_the_intensities_of_the_batch(kind, models, X):
    model = models(kind)
    times, types = X[1]
    stream = model.stream()
    for n, (time, type) in enumerate(zip(times, types, strict=True)):
        stream.append(time, int(type))
        if n in (0, 1, 7):
            at = time + np.array([1e-3, 0.5, 2.0])
            batch = model.intensity_at((times[: n + 1], types[: n + 1]), at)
            assert np.allclose(stream.intensity(at), batch, rtol=1e-5, atol=1e-5)
            assert np.allclose(stream.intensity(at[1]), batch[1], rtol=1e-5, atol=1e-5)
    assert len(stream) == len(times)
    said, row = stream.predict_next(), model.predict_next([X[1]]).row(0, named=True)
    for name in ("expected_time", "median_time", "probability"):
        assert said[name] == pytest.approx(row[name], rel=1e-5)
    assert said["type"] == row["type"]
    assert sum(said["probabilities"].values()) == pytest.approx(1, abs=1e-5)


def test_a_stream_refuses_invalid_events(models):
    stream = models("hazard").stream()
    with pytest.raises(DataError, match="the stream has no events yet; append an event first"):
        stream.predict_next()
    stream.append(1.0, "1")
    with pytest.raises(DataError, match=r"an event at 0\.5 after a later one"):
        stream.append(0.5, 0)
    with pytest.raises(DataError, match="there is no type 'zap'; the model knows 0, 1"):
        stream.append(2.0, "zap")
    with pytest.raises(DataError, match="not a finite time"):
        stream.append(float("nan"), 0)
    with pytest.raises(DataError, match="a time before the last event"):
        stream.intensity(0.9)
    # what was refused has left nothing behind
    assert len(stream) == 1
    stream.append(1.0, 0)
    assert len(stream) == 2


def test_a_stream_accepts_dates(X):
    frame = _dated(_table(X))
    model = EventPredictor.from_options(**TINY).fit(frame, **COLUMNS)
    one = frame.filter(pl.col("who") == "c2")
    stream = model.stream()
    for time, what in one.select("t", "what").iter_rows():
        stream.append(time, what)
    expected = model.predict_next(one)["expected_time"][0]
    assert abs(stream.predict_next()["expected_time"] - expected) < dt.timedelta(seconds=0.01)
    with pytest.raises(DataError, match="time has numbers; the model was trained on dates"):
        stream.append(1e9, what)
    assert stream.intensity(one["t"][-1] + dt.timedelta(hours=1)).shape == (2,)


@pytest.mark.parametrize("kind", ["hazard", "thp", "rmtpp", "nhp", "hp", "continuous"])
def test_the_expected_time_is_the_integral_of_the_survival_function(kind, models, X):
    """``E[s] = ∫ exp(-Λ(s)) ds``, by trapezoids on the public intensity; the share without a next event left out."""
    model = models(kind)
    history = X[2]
    unit = model.scaling_.unit
    waits = unit * np.concatenate([np.linspace(1e-9, 4, 1000), np.geomspace(4.004, 200, 1000)])
    rate = model.intensity_at(history, history[0][-1] + waits).sum(1)
    hazard = np.concatenate([[0.0], np.cumsum(np.diff(waits) * (rate[1:] + rate[:-1]) / 2)])
    survival = np.exp(-hazard)
    mass = 1 - survival[-1]
    mean = np.trapezoid(survival - survival[-1], waits) / mass
    row = model.predict_next([history]).row(0, named=True)
    assert row["expected_time"] - row["last_time"] == pytest.approx(mean, rel=3e-3)
    half = np.interp(np.log(2), hazard, waits)
    assert row["median_time"] - row["last_time"] == pytest.approx(half, rel=3e-3)


@pytest.mark.parametrize("kind", ["hazard", "rmtpp", "thp", "hp"])
def test_all_integrals_agree(kind, models, X):
    model = models(kind)
    closed = model.log_likelihood(X)
    gauss, error = model.log_likelihood(X, integral="gauss", nodes=64, return_error=True)
    # a hazard that is piecewise linear is not a polynomial: the estimate says how far off the rule is
    assert (np.abs(gauss - closed) <= 1e-3 * np.abs(closed) + 3 * error + 1e-4).all()
    torch.manual_seed(0)
    drawn = model.log_likelihood(X, integral="monte carlo", nodes=1000)
    assert np.allclose(drawn, closed, rtol=0.02, atol=0.3)
    with pytest.raises(ValueError, match="the integral must be"):
        model.log_likelihood(X, integral="simpson")


def test_rules_for_the_predicted_type(models, X):
    model = models("hazard")
    assert set(model.predict_next(X, rule="mixture")["type"]) <= {"0", "1"}
    with pytest.raises(ValueError, match="rule must be"):
        model.predict_next(X, rule="best")


def test_the_review_agrees_with_the_metrics(models, X):
    model = models("hazard")
    seen, metrics = one_step_ahead(model, X), model.evaluate(X)
    assert (seen.type == seen.predicted).mean() == pytest.approx(metrics["accuracy"])
    assert np.sqrt(np.mean((seen.wait - seen.expected) ** 2)) == pytest.approx(metrics["rmse"], rel=1e-5)
    assert len(seen.wait) == metrics["events"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.drop("t"), "there is no column 't'"),
        (lambda f: f.drop("what"), "there is no column 'what'"),
        (lambda f: f.drop("who"), "there is no column 'who'"),
        (lambda f: f.with_columns(t=pl.when(pl.col("t") < 3).then(np.nan).otherwise("t")), r"row \d+.*not finite"),
        (lambda f: f.with_columns(t=pl.when(pl.col("t") < 3).then(None).otherwise("t")), r"row \d+.*time is missing"),
        (lambda f: f.with_columns(what=pl.lit(None, pl.String)), "row 1, column 'what': is missing"),
        (lambda f: f.with_columns(t=pl.lit("noon")), "row 1, column 't': 'noon' is not a time"),
        (lambda f: f.with_columns(what=pl.lit("steal")), "row 1, column 'what': the type 'steal' was not there in"),
        (lambda f: f["t"].to_list(), "item 0 of X is not a pair"),
        (lambda f: [], "X has no sequences"),
        (lambda f: [([], [])], "sequence 0 has no events"),
        (lambda f: [([1.0, float("nan")], [0, 1])], "sequence 0: .*not a finite time"),
        (lambda f: [([1.0, 2.0], [0])], "sequence 0: 2 times but types of shape"),
        (lambda f: [([1.0, 2.0], [0, 5])], "an event of type 5, and the model knows 2 types"),
        (lambda f: [([1.0, 2.0], [0, -1])], "whole numbers from 0"),
        (lambda f: 7, "X is a int"),
    ],
)
def test_invalid_input_is_refused_with_its_place(change, said, X):
    frame = _table(X[:4])
    model = EventPredictor(backbone="hp", training=TrainingOptions(verbose=0)).fit(frame, **COLUMNS)
    with pytest.raises(DataError, match=said) as caught:
        model.predict_next(change(frame))
    assert "\n" not in str(caught.value)


def test_invalid_training_data_and_options_are_refused():
    with pytest.raises(DataError, match="the time column is not named"):
        EventPredictor.from_options(**TINY).fit(_table(_sequences(2)))
    with pytest.raises(DataError, match="no sequence has two events"):
        EventPredictor.from_options(**TINY).fit([([1.0], [0])] * 4)
    with pytest.raises(DataError, match="mean time between events is 0"):
        EventPredictor.from_options(**TINY).fit([([1.0, 1.0], [0, 0])] * 4)
    with pytest.raises(DataError, match="one sequence of 2 events cannot be divided"):
        EventPredictor.from_options(**TINY).fit([([1.0, 2.0], [0, 0])])
    for options, said in (
        ({"backbone": "thpp"}, "no backbone 'thpp' for events"),
        ({"intensity": "fast"}, "intensity must be one of"),
        ({"backbone": "hp", "intensity": "thp"}, "intensity of its own"),
        ({"backbone": "rmtpp", "intensity": "continuous"}, "states at events only"),
        ({"validation": 0.9}, "validation must be a share"),
        ({"integral": "simpson"}, "integral must be"),
    ):
        with pytest.raises(ValueError, match=said):
            EventPredictor.from_options(**{**TINY, **options}).fit(_sequences(4))


def test_intensities_before_the_first_event_are_refused(models, X):
    with pytest.raises(DataError, match="there is no history before"):
        models("hazard").intensity_at(X[0], [X[0][0][0]])
    assert models("hazard").intensity_at(X[0], []).shape == (0, 2)


@pytest.mark.parametrize("kind", ["hazard", "thp", "nhp", "hp", "continuous"])
def test_training_with_a_single_type(kind):
    backbone, intensity = KINDS[kind]
    X = [(times, np.zeros(len(times), int)) for times, _ in _sequences(4, 6)]
    model = EventPredictor.from_options(backbone=backbone, intensity=intensity, **TINY).fit(X)
    metrics = model.evaluate(X)
    assert metrics["accuracy"] == 1
    assert np.isfinite(metrics["log_likelihood"])
    assert model.predict_next(X)["probability"].to_list() == pytest.approx([1] * 4)
    plain = pl.DataFrame({"t": X[0][0]})
    assert EventPredictor.from_options(**TINY).fit(plain, time="t", validation_data=plain).type_names_ == ("event",)


@pytest.mark.parametrize("kind", KINDS)
def test_types_never_seen_have_a_finite_likelihood(kind, X):
    backbone, intensity = KINDS[kind]
    model = EventPredictor.from_options(backbone=backbone, intensity=intensity, num_types=4, **TINY).fit(
        [(times[:6], types[:6]) for times, types in X[:4]]
    )
    found = model.log_likelihood([(X[0][0], np.full(len(X[0][0]), 3))])
    assert np.isfinite(found).all()
    assert model.predict_next([([0.0, 1.0], [3, 2])])["probability"][0] > 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_waits_and_tied_events_give_finite_answers(kind, models):
    model = models(kind)
    far = (np.array([0.0, 1e6, 1e6 + 1]), [0, 1, 0])
    strange = [
        (np.array([0.0, 1e-9, 2e-9, 1.0]), [0, 1, 0, 1]),
        (np.array([3.0, 3.0, 3.0, 4.0]), [0, 1, 1, 0]),
        (np.array([0.0, 40.0, 41.0]), [0, 1, 0]),
        (np.array([5.0]), [1]),
    ]
    if KINDS[kind][0] == "contiformer":
        with pytest.raises(DataError, match=r"sequence 1 lasts .* times as long as the longest of the training"):
            model.log_likelihood([strange[0], far])
    else:
        strange.append(far)
    assert np.isfinite(model.log_likelihood(strange)).all()
    assert model.log_likelihood(strange[3:4]).tolist() == [0.0]
    said = model.predict_next(strange)
    assert np.isfinite(said["expected_time"].to_numpy()).all()
    assert (said["expected_time"] >= said["last_time"]).all()
    assert np.isfinite(list(model.evaluate(strange).values())).all()


def test_training_on_extreme_waits_is_finite():
    X = [([0.0, 1e-9, 1.0, 1e6, 1e6, 1e6 + 1], [0, 1, 0, 1, 0, 1])] * 6
    assert np.isfinite(EventPredictor.from_options(**TINY).fit(X).score(X))


def test_an_empty_sequence_has_log_likelihood_zero(models, X):
    model = models("hazard")
    both = model.log_likelihood([([], []), X[0]])
    assert both[0] == 0
    assert both[1] == pytest.approx(model.log_likelihood(X[:1])[0])
    with pytest.raises(DataError, match="no events"):
        model.sample(([], []), n=1)
