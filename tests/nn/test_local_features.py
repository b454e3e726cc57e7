"""Local features: fills, window means, time since the last observation, frames."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contiformer.nn.frames import FrameEncoder
from contiformer.nn.local_features import around, fill_channels, time_since_observed, window_means

EDGES = torch.tensor([-0.4, -0.1, 0.0, 0.0, 0.1, 0.5], dtype=torch.float64)


def problem(seed, lengths=(9, 6, 1), channels=3):
    """Padded series; the last channel of the first is never observed."""
    draw = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths))
    times = torch.rand(shape, generator=draw, dtype=torch.float64).sort(1).values
    values = torch.randn(*shape, channels, generator=draw, dtype=torch.float64)
    observed = torch.rand(*shape, channels, generator=draw) > 0.3
    observed[0, :, -1] = False
    for row, length in enumerate(lengths):
        observed[row, length:] = False
        times[row, length:] = times[row, length - 1]
    return values * observed, times, observed, torch.tensor(lengths)


def knots(values, times, observed, row, channel):
    seen = observed[row, :, channel].numpy()
    return times[row].numpy()[seen], values[row, :, channel].numpy()[seen]


@given(st.integers(0, 10**6))
def test_fill_is_linear_interpolation(seed):
    values, times, observed, _ = problem(seed)
    filled = fill_channels(values, times, observed)
    for row in range(3):
        for channel in range(3):
            at, seen = knots(values, times, observed, row, channel)
            want = np.interp(times[row], at, seen) if len(at) else np.zeros(times.shape[1])
            np.testing.assert_allclose(filled[row, :, channel], want, atol=1e-12)


@given(st.integers(0, 10**6))
def test_causal_fill_is_last_observation_carried_forward(seed):
    values, times, observed, _ = problem(seed)
    filled = fill_channels(values, times, observed, causal=True)
    for i in range(times.shape[1]):
        # nothing after a point can be felt at it
        cut = observed.clone()
        cut[:, i + 1 :] = False
        torch.testing.assert_close(fill_channels(values * cut, times, cut, causal=True)[:, : i + 1], filled[:, : i + 1])
    seen = observed[0, :, 0].nonzero().squeeze(1)
    for i in range(times.shape[1]):
        before = seen[seen <= i]
        assert filled[0, i, 0] == (values[0, before[-1], 0] if len(before) else 0.0)


def _integral(at, seen, end):
    """Of the path from its first knot to ``end``: trapezoids between all the knots, held beyond them."""
    grid = np.sort(np.concatenate([[at[0], end], at[(at > min(at[0], end)) & (at < max(at[0], end))]]))
    area = np.trapezoid(np.interp(grid, at, seen), grid)
    return area if end >= at[0] else -area


@settings(max_examples=6)
@given(st.integers(0, 10**6))
def test_window_means_are_exact(seed):
    values, times, observed, lengths = problem(seed)
    observed |= (torch.arange(9) < lengths[:, None])[..., None]
    means = window_means(values, times, lengths, EDGES)
    assert means.shape == (3, 9, 5, 3)
    centre = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2 - 0.5
    elsewhere = window_means(values, times, lengths, EDGES, centre)
    for row, length in enumerate(lengths.tolist()):
        at = times[row, :length].numpy()
        for channel in range(3):
            seen = values[row, :length, channel].numpy()
            for middles, found in ((at, means), (centre[row].numpy(), elsewhere)):
                for i, t in enumerate(middles):
                    for k in range(5):
                        start, end = t + float(EDGES[k]), t + float(EDGES[k + 1])
                        want = np.interp(start, at, seen)
                        if end > start:
                            want = (_integral(at, seen, end) - _integral(at, seen, start)) / (end - start)
                        assert found[row, i, k, channel] == pytest.approx(want, abs=1e-9)


def test_window_means_with_tied_times_and_without_points():
    times = torch.tensor([[0.0, 1.0, 1.0, 2.0]], dtype=torch.float64)
    values = torch.tensor([[[0.0], [0.0], [2.0], [2.0]]])
    means = window_means(values, times, torch.tensor([4]), torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64))
    assert means[0, :, 1, 0].tolist() == [0.0, 2.0, 2.0, 2.0]
    assert means[0, 3, 0, 0] == 2.0
    nothing = window_means(torch.zeros(2, 0, 3), torch.zeros(2, 0), torch.zeros(2, dtype=torch.int64), EDGES)
    assert nothing.shape == (2, 0, 5, 3)


@given(st.integers(0, 10**6))
def test_time_since_the_last_observation(seed):
    _, times, observed, _ = problem(seed)
    since = time_since_observed(times, observed)
    for i in range(times.shape[1]):
        seen = observed[1, : i + 1, 0].nonzero().squeeze(1)
        assert since[1, i, 0] == times[1, i] - (times[1, seen[-1]] if len(seen) else times[1, 0])


@given(st.integers(0, 10**6))
def test_features_around_any_time(seed):
    values, times, observed, _ = problem(seed)
    queries = torch.cat([torch.rand(3, 5, dtype=torch.float64) * 2 - 0.5, times[:, :2]], dim=1)
    line, gaps, has = around(values, times, observed, queries)
    for row in range(3):
        for channel in range(3):
            at, seen = knots(values, times, observed, row, channel)
            if not len(at):
                assert not has[row, :, channel].any()
                assert not line[row, :, channel].any()
                continue
            np.testing.assert_allclose(line[row, :, channel], np.interp(queries[row], at, seen), atol=1e-9)
            for q, t in enumerate(queries[row].tolist()):
                before, after = at[at <= t], at[at > t]
                assert has[row, q, channel].tolist() == [len(before) > 0, len(after) > 0]
                want = [t - before[-1] if len(before) else 0.0, after[0] - t if len(after) else 0.0]
                np.testing.assert_allclose(gaps[row, q, channel], want, atol=1e-12)
    line, gaps, has = around(values[:, :0], times[:, :0], observed[:, :0], queries)
    assert not line.any()
    assert not has.any()
    assert gaps.shape == (3, 7, 3, 2)


def test_gradients_flow_to_the_values():
    values, times, observed, lengths = problem(0)
    given = values.clone().requires_grad_()
    filled = fill_channels(given, times, observed)
    torch.autograd.gradcheck(lambda x: window_means(x, times, lengths, EDGES), (values.clone().requires_grad_(),))
    torch.autograd.gradcheck(lambda x: fill_channels(x, times, observed), (values.clone().requires_grad_(),))
    window_means(filled, times, lengths, EDGES).sum().backward()
    assert given.grad is not None
    assert (given.grad[observed] != 0).any()
    assert not given.grad[~observed].any()


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 3), (24, 24)])
def test_frames_are_encoded_independently(size):
    torch.manual_seed(0)
    encoder = FrameEncoder(*size, 6).eval()
    pixels = torch.rand(2, 4, size[0] * size[1], requires_grad=True)
    features = encoder(pixels)
    assert features.shape == (2, 4, 6)
    torch.testing.assert_close(encoder(pixels[1, 2]), features[1, 2])
    features[0, 1].sum().backward()
    assert pixels.grad[0, 1].any()
    assert not pixels.grad[1].any()


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (4, 5), (24, 24)])
def test_every_pixel_of_a_frame_matters(size):
    torch.manual_seed(0)
    pixels = torch.randn(20, size[0] * size[1], requires_grad=True)
    FrameEncoder(*size, 6).eval()(pixels).sum().backward()
    assert (pixels.grad != 0).any(0).all()


def test_frame_dropout_is_active_in_training_only():
    torch.manual_seed(0)
    encoder, pixels = FrameEncoder(24, 24, 6), torch.rand(3, 24 * 24)
    assert not torch.equal(encoder(pixels), encoder(pixels))
    encoder.eval()
    assert torch.equal(encoder(pixels), encoder(pixels))
