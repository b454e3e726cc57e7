import copy
import subprocess
import sys

import pytest
import torch

from contiformer import ContiFormer
from tests.problems import irregular_times, largest, normal, sorted_times, spaced_times

CHANNELS, WIDTH = 3, 8


def make_model(n_layers=2, seed=0, **options):
    torch.manual_seed(seed)
    return ContiFormer(CHANNELS, WIDTH, n_heads=2, n_layers=n_layers, **options).double().eval()


def draw_data(batch=2, obs=7):
    return normal(batch, obs, CHANNELS), sorted_times(batch, obs)


def queries_anywhere(batch=2):
    return 1.6 * torch.rand(batch, 5, dtype=torch.float64) - 0.3


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"interpolation": "hermite"}, {"rule": "gauss"}], ids=str)
def test_states_at_the_times_and_at_any_queries(n_layers, options):
    model = make_model(n_layers, **options)
    values, times = draw_data()
    assert model(values, times).shape == (2, 7, WIDTH)
    states = model(values, times, query_times=queries_anywhere())
    assert states.shape == (2, 5, WIDTH)
    assert states.isfinite().all()


@pytest.mark.parametrize(("width", "heads"), [(64, 8), (32, 4), (20, 2), (17, 1), (8, 1), (4, 1), (24, 3)])
def test_heads_are_eight_wide_or_a_little_more(width, heads):
    assert ContiFormer(CHANNELS, width).layers[0].attention.n_heads == heads


@pytest.mark.parametrize("queries", [None, queries_anywhere()], ids=["times", "queries"])
def test_a_norm_at_the_entry_stands_before_attention_and_not_at_the_end(queries):
    model = make_model(1, norm="entry")
    layer = model.layers[0]
    x, times = normal(2, 7, WIDTH), sorted_times(2, 7)
    base = x if queries is None else layer._input_path(x, times, queries, None, None)
    normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    z = layer.attention_norm(base + layer.attention(normed, times, queries))
    assert largest(layer(x, times, queries) - (z + layer.feed_forward(z))) < 1e-12


def test_the_scale_of_the_encoding_is_beside_the_values():
    model, other = make_model(1), make_model(1, encoding_scale=0.25)
    times = torch.rand(3, 5, dtype=torch.float64)
    assert torch.equal(other.encoding(times), 0.25 * model.encoding(times))
    assert largest(make_model(1, encoding_scale=0.0).encoding(times)) == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"norm": "begin"}, "norm must be one of end, entry, got 'begin'"),
        ({"encoding_scale": -1.0}, "scale of the encoding must be finite and not negative, got -1"),
        ({"encoding_scale": float("nan")}, "scale of the encoding must be finite"),
    ],
)
def test_wrong_norms_and_scales_are_refused(options, told):
    with pytest.raises(ValueError, match=told):
        make_model(1, **options)


def test_attention_options_reach_every_layer():
    model = make_model(2, rule="gauss", points=4, causal=True, dropout=0.25, d_ff=5)
    for layer in model.layers:
        assert layer.attention.rule.points == 4
        assert layer.attention.rule.causal
        assert layer.attention.rule.dropout == 0.25
        assert layer.feed_forward[0].out_features == 5


@pytest.mark.parametrize("interpolation", ["linear", "hermite", "cubic"])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_queries_at_the_times_give_the_states_at_the_times(interpolation, n_layers):
    """The residual at a query is the input path, which goes through the inputs."""
    model = make_model(n_layers, interpolation=interpolation)
    values, times = draw_data()
    assert largest(model(values, times, query_times=times) - model(values, times)) < 1e-8


def test_states_are_continuous_in_time():
    model = make_model()
    values, times = normal(2, 7, CHANNELS), spaced_times(2, 7)
    queries = torch.cat([times, times - 1e-9, queries_anywhere()], dim=1)
    moved = model(values, times, query_times=queries + 1e-9) - model(values, times, query_times=queries)
    assert 0 < largest(moved) < 1e-5


def test_nan_counts_as_missing():
    model = make_model()
    values, times = draw_data()
    observed = torch.rand(2, 7, CHANNELS) < 0.6
    with_nan = values.masked_fill(~observed, torch.nan)
    for queries in (None, queries_anywhere()):
        told, found = model(values, times, observed, queries), model(with_nan, times, query_times=queries)
        assert torch.equal(told, found)
        assert torch.equal(model(with_nan, times, observed, queries), told)
        assert found.isfinite().all()


def test_value_of_a_missing_channel_does_not_matter_but_that_it_is_missing_does():
    model = make_model()
    values, times = draw_data()
    observed = torch.ones(2, 7, CHANNELS, dtype=torch.bool)
    observed[0, 3, 1] = False
    changed = values.clone()
    changed[0, 3, 1] = 123.0
    before = model(values, times, observed)
    assert torch.equal(model(changed, times, observed), before)
    assert largest(model(values, times)[0] - before[0]) > 1e-6
    zero = values.clone()
    zero[0, 3, 1] = 0.0
    assert largest(model(zero, times)[0] - before[0]) > 1e-6
    assert torch.equal(model(values, times)[1], before[1])


def test_channel_that_is_never_observed_is_legal():
    model = make_model()
    values, times = draw_data()
    values[..., 1] = torch.nan
    states = model(values, times)
    assert states.isfinite().all()
    values[..., 0] += 1
    assert largest(model(values, times) - states) > 1e-6


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"interpolation": "cubic"}], ids=str)
@pytest.mark.parametrize("with_queries", [False, True])
def test_padding_and_batch_mates_do_not_matter(options, with_queries):
    model = make_model(**options)
    values, times = draw_data(batch=3, obs=9)
    times[1] *= 2.5
    lengths = [9, 5, 1]
    queries = torch.cat([queries_anywhere(3), times[:, :1]], dim=1) if with_queries else None
    padded_values, padded_times = values.clone(), times.clone()
    for row, length in enumerate(lengths):
        padded_values[row, length:], padded_times[row, length:] = torch.nan, torch.nan
    together = model(padded_values, padded_times, query_times=queries)
    for row, length in enumerate(lengths):
        at = None if queries is None else queries[row : row + 1]
        alone = model(values[row : row + 1, :length], times[row : row + 1, :length], query_times=at)
        assert largest(together[row, : alone.shape[1]] - alone[0]) < 1e-6
        if not with_queries:
            assert torch.equal(together[row, length:], torch.zeros_like(together[row, length:]))


def test_rows_without_observations_in_the_middle_do_not_matter():
    model = make_model()
    values, times = draw_data(obs=6)
    observed = torch.ones(2, 6, CHANNELS, dtype=torch.bool)
    observed[:, 2] = False
    kept = torch.tensor([0, 1, 3, 4, 5])
    queries = queries_anywhere()
    assert (
        largest(model(values, times, observed, queries) - model(values[:, kept], times[:, kept], None, queries)) < 1e-8
    )


def test_reference_times_are_where_the_inner_layers_are_sampled():
    model = make_model(3)
    values, times = draw_data()
    queries = queries_anywhere()
    reference = sorted_times(2, 4)
    one, listed = model(values, times, None, queries, reference), model(values, times, None, queries, [reference] * 2)
    assert torch.equal(one, listed)
    other = model(values, times, None, queries, [reference, times])
    assert largest(other - one) > 1e-6
    at_times = model(values, times, None, queries, times)
    assert largest(at_times - model(values, times, None, queries)) < 1e-8


@pytest.mark.no_array_checks
@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ([torch.rand(2, 4)], "reference_times must be one tensor or 2"),
        (torch.rand(2, 4).sort(descending=True).values, "reference_times of layer 0 must not decrease"),
        (torch.rand(1, 4).sort().values, r"reference_times of layer 0 must be \[2, references\]"),
        (torch.rand(4), "reference_times of layer 0 must be"),
        (torch.tensor([[0.1, torch.nan], [0.1, 0.2]]), "reference_times of layer 0 must be finite"),
    ],
)
def test_bad_reference_times_are_refused(reference, complaint):
    values, times = draw_data()
    with pytest.raises(ValueError, match=complaint):
        make_model(3)(values, times, None, queries_anywhere(), reference)


def test_reference_times_need_query_times():
    values, times = draw_data()
    with pytest.raises(ValueError, match="query_times"):
        make_model(2)(values, times, reference_times=times)


@pytest.mark.parametrize("options", [{}, {"interpolation": "hermite"}, {"rule": "linear"}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("with_queries", [False, True])
def test_causal_layers_do_not_see_the_future(options, dtype, with_queries):
    model = make_model(2, causal=True, **options).to(dtype)
    values, times = normal(2, 80, CHANNELS).to(dtype), irregular_times(80).expand(2, -1)
    since = 50
    changed = values.clone()
    changed[:, since:] = 10 * normal(2, 30, CHANNELS).to(dtype)
    changed[:, since + 3, 1] = torch.nan
    queries = torch.rand(2, 30, dtype=torch.float64) if with_queries else None
    earlier = (times if queries is None else queries) < times[:, since : since + 1]
    before, after = (model(v, times, query_times=queries) for v in (values, changed))
    assert torch.equal(before[earlier], after[earlier])
    assert not torch.equal(before[~earlier], after[~earlier])


def test_query_before_the_first_observation_of_a_causal_model_does_not_see_it():
    model = make_model(2, causal=True)
    values, times = draw_data()
    queries = times[:, :1] - torch.tensor([[0.3, 0.01]])
    states = model(values, times, query_times=queries)
    assert torch.equal(states, model(-5 * values, times, query_times=queries))
    nothing = model(values[:, :0], times[:, :0], query_times=queries)
    assert largest(states - nothing) < 1e-12


def test_causal_query_between_observations_does_not_see_the_next_one():
    model = make_model(1, causal=True)
    values, times = draw_data()
    queries = (times[:, 3:4] + times[:, 4:5]) / 2
    changed = values.clone()
    changed[:, 4:] += 1
    assert torch.equal(model(values, times, query_times=queries), model(changed, times, query_times=queries))
    assert largest(model(values, times, query_times=queries) - model(values, times, query_times=times[:, 3:4])) > 1e-6


@pytest.mark.parametrize("options", [{}, {"causal": True}], ids=str)
@pytest.mark.parametrize("shift", [0.0, 1e9, -3e5])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_unit_and_origin_of_time_do_not_matter_once_the_clock_is_fitted(options, shift, scale):
    values, times = draw_data()
    queries = queries_anywhere()
    far, far_queries = times * scale + shift, queries * scale + shift
    # what the numbers still say after they were rounded at that size
    left, left_queries = (far - shift) / scale, (far_queries - shift) / scale
    left = left.sort().values
    states = []
    for t, q in ((far, far_queries), (left, left_queries)):
        model = make_model(**options)
        model.clock.fit(t)
        states.append(torch.cat([model(values, t), model(values, t, query_times=q)], dim=1))
    assert states[0].isfinite().all()
    assert largest(states[0] - states[1]) < 1e-6


def test_clock_looks_at_observed_times_only():
    model = make_model()
    mask = torch.tensor([[True, True, True, False], [False, True, True, True]])
    times = torch.tensor([[10.0, 11.0, 14.0, torch.nan], [-1e9, 12.0, 13.0, 15.0]])
    model.clock.fit(times, mask)
    assert model.clock(torch.tensor([10.0, 14.0, 12.0])).tolist() == [0.0, 1.0, 0.5]


@pytest.mark.parametrize("times", [torch.tensor([[0.0, torch.inf]]), torch.tensor([[torch.nan, 1.0]])])
def test_clock_rejects_times_that_are_not_finite(times):
    with pytest.raises(ValueError, match="times must be finite"):
        make_model().clock.fit(times)


def test_clock_fits_one_time_and_refuses_none():
    clock = make_model().clock
    clock.fit(torch.tensor([[7.0]]))
    assert clock(torch.tensor([7.0, 8.0])).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="no observed"):
        clock.fit(torch.tensor([[7.0]]), torch.tensor([[False]]))


@pytest.mark.parametrize(("origin", "unit"), [(torch.nan, 1.0), (0.0, 0.0), (0.0, -1.0), (0.0, torch.inf)])
def test_unusable_clocks_are_rejected(origin, unit):
    with pytest.raises(ValueError, match="unit"):
        make_model(time_origin=origin, time_unit=unit)


@pytest.mark.parametrize("cast", [lambda m: m, lambda m: m.half(), lambda m: m.float(), lambda m: m.half().float()])
def test_state_dict_keeps_the_clock_in_double_precision(cast):
    origin, unit = 1_234_567_890.123, 3.3e-5
    model = cast(make_model(time_origin=origin, time_unit=unit))
    other = make_model(seed=1)
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert (model.clock.origin, model.clock.unit) == (origin, unit)
    assert (other.clock.origin, other.clock.unit) == (origin, unit)


def test_state_dict_round_trips():
    model, other = make_model(), make_model(seed=1)
    model.clock.fit(torch.tensor([[3.0, 8.0]]))
    values, times = draw_data()
    times = 3 + 5 * times
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(values, times), other(values, times))


def test_casting_there_and_back_keeps_the_temporal_encoding():
    """Frequencies are constants: rounding them to half precision would move every encoded time for good."""
    model = make_model()
    before = model.encoding(torch.linspace(0, 1, 20, dtype=torch.float64))
    after = model.half().double().encoding(torch.linspace(0, 1, 20, dtype=torch.float64))
    assert largest(before - after) < 1e-5


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf])
def test_infinite_values_are_refused_where_observed(bad):
    values, times = draw_data()
    values[1, 2, 0] = bad
    with pytest.raises(ValueError, match=r"values must be finite.*sequence 1 at position 2, channel 0"):
        make_model()(values, times)
    observed = values.isfinite()
    assert make_model()(values, times, observed).isfinite().all()


def test_nan_that_is_marked_observed_is_refused():
    values, times = draw_data()
    values[1, 2, 0] = torch.nan
    with pytest.raises(ValueError, match="values must be finite"):
        make_model()(values, times, torch.ones_like(values, dtype=torch.bool))


@pytest.mark.no_array_checks
@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("values", {"values": torch.zeros(2, 7, CHANNELS + 1)}),
        ("values", {"values": torch.zeros(7, CHANNELS)}),
        ("times", {"times": torch.zeros(2, 6)}),
        ("times", {"times": torch.zeros(7)}),
        ("times", {"times": torch.linspace(1, 0, 7).expand(2, -1)}),
        ("times", {"times": torch.full((2, 7), torch.nan)}),
        ("observed", {"observed": torch.ones(2, 7, dtype=torch.bool)}),
        ("observed", {"observed": torch.ones(2, 7, CHANNELS)}),
        ("query_times", {"query_times": torch.zeros(3)}),
        ("query_times", {"query_times": torch.full((2, 3), torch.inf)}),
    ],
)
def test_bad_argument_is_refused_by_name(argument, change):
    values, times = draw_data()
    with pytest.raises(ValueError, match=rf"\b{argument}\b"):
        make_model()(**({"values": values, "times": times} | change))


@pytest.mark.parametrize(
    ("option", "options"), [("input_size", {"input_size": 0}), ("n_layers", {"n_layers": 0}), ("rule", {"rule": "no"})]
)
def test_bad_option_is_refused_by_name(option, options):
    with pytest.raises(ValueError, match=option):
        ContiFormer(**({"input_size": CHANNELS} | options))


@pytest.mark.parametrize("options", [{}, {"causal": True}], ids=str)
def test_empty_sequences_are_finite_and_know_the_time_of_the_query(options):
    model = make_model(**options)
    queries = queries_anywhere()
    no_rows = model(torch.zeros(2, 0, CHANNELS).double(), torch.zeros(2, 0), query_times=queries)
    only_padding = model(torch.full((2, 4, CHANNELS), torch.nan).double(), torch.zeros(2, 4), query_times=queries)
    assert no_rows.isfinite().all()
    assert largest(no_rows - only_padding) < 1e-12
    assert largest(no_rows[:, 0] - no_rows[:, 1]) > 1e-6
    assert model(torch.zeros(2, 0, CHANNELS).double(), torch.zeros(2, 0)).shape == (2, 0, WIDTH)


def test_duplicate_times_are_legal_and_their_order_does_not_matter():
    model = make_model()
    values = normal(1, 5, CHANNELS)
    times = torch.tensor([[0.1, 0.4, 0.4, 0.4, 0.8]])
    swap = torch.tensor([0, 3, 1, 2, 4])
    queries = queries_anywhere(1)
    assert largest(model(values, times)[:, swap] - model(values[:, swap], times)) < 1e-6
    assert largest(model(values, times, None, queries) - model(values[:, swap], times, None, queries)) < 1e-6


def test_training_reaches_every_parameter():
    model = make_model().train()
    values, times = draw_data()
    model(values, times, query_times=queries_anywhere()).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert all(p.grad.abs().sum() > 0 for name, p in model.named_parameters() if "norm" not in name)


def test_import_is_light():
    heavy = ("lightning", "pytorch_lightning", "pandas", "matplotlib", "sklearn", "scipy", "torchdiffeq")
    code = f"import sys; from contiformer import ContiFormer, nn; print(sorted(set({heavy}) & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
