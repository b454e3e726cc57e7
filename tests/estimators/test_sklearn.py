"""The contract of scikit-learn.

Its own checks hand in matrices [n, features], which are taken as n series of one channel at the times 0, 1, 2, ...
Those that ask for something else of the data are listed in ``NOT_FOR_SERIES`` with the reason.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import check_is_fitted

from contiformer import Classifier, Forecaster, Interpolator, Regressor
from contiformer.data import Series, SeriesSet, from_frame
from tests.estimators.problems import TINY, long_table, numbers, waves

ALL = [Classifier, Regressor, Interpolator, Forecaster]

_LENGTH = "the second dimension is time: series of other lengths are welcome"
_WORDS = "refused with a DataError in other words than scikit-learn's"
NOT_FOR_SERIES = {
    "check_n_features_in": _LENGTH,
    "check_n_features_in_after_fitting": _LENGTH,
    "check_classifiers_train": f"raises for a transposed matrix: {_LENGTH}",
    "check_regressors_train": f"raises for a transposed matrix: {_LENGTH}",
    "check_classifier_data_not_an_array": "a DataFrame has to be told the time column is not named",
    "check_regressor_data_not_an_array": "a DataFrame has to be told the time column is not named",
    "check_sample_weights_pandas_series": "a DataFrame has to be told the time column is not named",
    "check_sample_weight_equivalence_on_dense_data": "series are divided into training and validation, weighted or not",
    "check_estimators_empty_data_messages": "series without points are legal",
    "check_complex_data": _WORDS,
    "check_dtype_object": "an array of objects is a list of series",
    "check_fit2d_predict1d": _WORDS,
    "check_supervised_y_2d": "one column of labels is taken without a warning",
    "check_requires_y_none": "labels may be in X, and the message says so",
}
#: They ask for nine digits, which float32 does not have; test_properties.py asks for as many as it has.
IN_FLOAT64 = {"check_methods_sample_order_invariance", "check_methods_subset_invariance"}


def estimator(kind, **options):
    return kind.from_options(**{**TINY, "n_layers": 1, "max_epochs": 2, "window": 1, **options})


def _checks():
    for kind in (Classifier, Regressor):
        for model, check in estimator_checks_generator(estimator(kind), mark=None):
            name = check.func.__name__ if hasattr(check, "func") else check.__name__
            if name in IN_FLOAT64 or (kind is Regressor and "regressor" not in name):
                continue  # the regressor is the same code as the classifier in all else
            reason = NOT_FOR_SERIES.get(name)
            marks = () if reason is None else pytest.mark.xfail(reason=reason, strict=True)
            yield pytest.param(model, check, id=f"{kind.__name__}-{name}", marks=marks)


@pytest.mark.parametrize(("model", "check"), list(_checks()))
@pytest.mark.filterwarnings("ignore::Warning")
def test_scikit_learn_estimator_checks(model, check):
    check(model)


@pytest.mark.parametrize("kind", ALL)
def test_constructor_parameters_are_stored_unchanged(kind):
    options = {"n_heads": 2}
    model = kind(backbone_options=options, d_model=np.int64(8), run_dir="somewhere")
    assert model.backbone_options is options
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy is not model
    assert model.set_params(d_model=16, training__verbose=0) is model
    assert model.d_model == 16
    with pytest.raises(ValueError, match="Invalid parameter 'dmodel'"):
        model.set_params(dmodel=1)
    with pytest.raises(TypeError):
        kind(8)
    assert repr(kind(d_model=8)) == f"{kind.__name__}(d_model=8)"
    # nothing is checked before fit
    assert kind(d_model="nonsense").d_model == "nonsense"


def test_estimator_types():
    assert is_classifier(Classifier())
    assert not is_classifier(Regressor())
    assert is_regressor(Regressor())
    assert not is_regressor(Interpolator())


@pytest.mark.parametrize("kind", ALL)
def test_unfitted_estimators_raise_not_fitted_error(kind, X, tmp_path):
    model = kind()
    for ask in (model.predict, model.embed, model.explain, model.evaluate):
        with pytest.raises(NotFittedError, match=f"this {kind.__name__} is not fitted yet"):
            ask(X)
    with pytest.raises(NotFittedError):
        model.save(tmp_path)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    assert not hasattr(model, "history_")
    assert not list(tmp_path.iterdir())


def test_a_failed_fit_leaves_no_model(X, y):
    model = estimator(Classifier).fit(X, y)
    check_is_fitted(model)
    with pytest.raises(ValueError, match="accelerator"):
        model.set_params(training__accelerator="abacus").fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_grid_search_over_a_list_of_series(X, y):
    search = GridSearchCV(estimator(Classifier), {"d_model": np.array([4, 8]), "pooling": ["mean"]}, cv=2)
    search.fit(X, y)
    assert search.predict(X).shape == (len(X),)
    assert search.best_params_["d_model"] in (4, 8)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_cross_validation(X, y):
    assert cross_val_score(estimator(Classifier), X, y, cv=2, scoring="neg_log_loss").shape == (2,)
    assert np.isfinite(cross_val_score(estimator(Regressor), X, numbers(X), cv=2)).all()
    assert np.isfinite(cross_val_score(estimator(Interpolator), X, cv=2)).all()
    said = cross_val_predict(estimator(Classifier), X, y, cv=2, method="predict_proba")
    np.testing.assert_allclose(said.sum(1), 1)
    array = np.random.default_rng(0).normal(size=(12, 5, 2))
    assert cross_val_score(estimator(Classifier), array, y, cv=2).shape == (2,)
    data = SeriesSet([Series.of(times, values) for times, values in X])
    assert cross_val_score(estimator(Classifier), data, y, cv=2).shape == (2,)


def test_cross_validation_of_a_table_with_groups(X, y):
    """The recipe of docs/tables.md: series are the samples, so a table becomes a set first."""
    table = pd.DataFrame(long_table(X, y))
    data = from_frame(table, id="who", time="hour", label="kind")
    hospital = [int(name[1:]) // 3 for name in data.ids]
    scores = cross_val_score(estimator(Classifier), data, data.labels, groups=hospital, cv=GroupKFold(3))
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()


def test_same_seed_same_model_other_seed_other_model(X, y):
    a, b, c = (estimator(Classifier, seed=seed).fit(X, y).predict_proba(X) for seed in (3, 3, 4))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-6
    # and a model that is fitted again forgets
    model = estimator(Classifier, seed=3).fit(*waves(10, seed=5))
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), a)


def test_verbose_0_prints_and_writes_nothing(X, y, capfd, tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    for kind, labels in ((Classifier, y), (Regressor, numbers(X)), (Interpolator, None)):
        estimator(kind, verbose=0).fit(X, labels).predict(X)
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
    assert not [str(one.message) for one in recwarn]
