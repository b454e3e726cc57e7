from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from reproduction import theorem

KINDS = ("vanilla", "gsm", "mercer", "mtan")
SIZES = ((2, 1), (5, 3), (12, 4), (30, 8))
CLOSE = 1e-4


class Case(NamedTuple):
    times: Tensor
    Q: Tensor
    K: Tensor
    attention: Tensor
    embedding: Tensor


def irregular_times(n: int, draw: torch.Generator) -> Tensor:
    """Random times in order, the last two a close pair."""
    times = torch.rand(n, generator=draw, dtype=torch.float64).sort().values
    times[-1] = times[-2] + CLOSE
    return times


def make_case(kind: str, n: int, d: int, seed: int) -> Case:
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    times = irregular_times(n, draw)
    Q = normal(d).sign() * (0.05 + normal(n, d).abs())
    K = normal(n, d)
    embedding = torch.zeros(n, 1, dtype=torch.float64)
    if kind == "vanilla":
        attention = theorem.vanilla_attention(Q, K)
    elif kind == "gsm":
        kernel = theorem.gsm_kernel(times, normal(n, 3), normal(n, 3), normal(n, 3).exp())
        attention = theorem.gsm_attention(Q, K, kernel)
    elif kind == "mercer":
        embedding = theorem.mercer_embedding(times, normal(2).exp(), normal(2, 5).exp())
        attention = theorem.mercer_attention(Q, K, embedding)
    else:
        K = torch.zeros_like(K)
        embedding = theorem.mtan_embedding(times, 5 * normal(6), normal(6), normal(6, 6))
        attention = theorem.mtan_attention(embedding)
    return Case(times, Q, K, attention, embedding)


@pytest.fixture(params=[(kind, *size, seed) for kind in KINDS for size in SIZES for seed in range(3)], ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(*request.param)


def test_continuous_attention_equals_target(case: Case) -> None:
    query = theorem.query_curve(case.times, case.Q)
    keys = theorem.key_curves(query, case.times, case.K, case.attention)
    continuous = theorem.continuous_attention_matrix(query, keys, case.times)
    torch.testing.assert_close(continuous, case.attention, rtol=0, atol=1e-8)


def test_key_curves_start_at_keys(case: Case) -> None:
    query = theorem.query_curve(case.times, case.Q)
    keys = theorem.key_curves(query, case.times, case.K, case.attention)
    starts = torch.cat([key(t[None]) for key, t in zip(keys, case.times)])
    torch.testing.assert_close(starts, case.K, rtol=0, atol=1e-12)


def test_query_curve_meets_queries_and_no_component_vanishes(case: Case) -> None:
    query = theorem.query_curve(case.times, case.Q)
    assert torch.equal(query(case.times), case.Q)
    grid = torch.linspace(-1, 2, 3001, dtype=torch.float64)
    assert (query(grid).sign() == case.Q[0].sign()).all()


@pytest.mark.parametrize("kind", KINDS)
def test_constant_keys_do_not_give_the_target(kind: str) -> None:
    """The equality is the work of the key curves: keys at rest, or those of another target, miss it."""
    times, Q, K, attention, _ = make_case(kind, 12, 4, seed=0)
    query = theorem.query_curve(times, Q)
    resting = [lambda t, key=key: key.expand(len(t), -1) for key in K]
    assert (theorem.continuous_attention_matrix(query, resting, times) - attention).abs().max() > 1e-2
    other = attention.clone()
    other[3, 7] += 1e-3
    keys = theorem.key_curves(query, times, K, other)
    error = (theorem.continuous_attention_matrix(query, keys, times) - attention).abs()
    assert error.argmax() == 3 * 12 + 7
    torch.testing.assert_close(error.max().item(), 1e-3, rtol=0, atol=1e-8)


@pytest.mark.parametrize("points", [2, 3, 20])
def test_rule_is_exact_from_two_nodes_on(points: int) -> None:
    times, Q, K, attention, _ = make_case("gsm", 12, 4, seed=0)
    query = theorem.query_curve(times, Q)
    keys = theorem.key_curves(query, times, K, attention)
    continuous = theorem.continuous_attention_matrix(query, keys, times, points)
    torch.testing.assert_close(continuous, attention, rtol=0, atol=1e-8)


def test_continuous_attention_of_known_curves() -> None:
    """q = (1, t), k_i = (cos t, i): the mean of cos t + i t over [t_i, t_j] is known."""
    times = torch.tensor([-0.5, 0.0, 0.7, 2.0], dtype=torch.float64)
    keys = [lambda t, i=i: torch.stack([t.cos(), torch.full_like(t, i)], dim=1) for i in range(4)]
    continuous = theorem.continuous_attention_matrix(
        lambda t: torch.stack([torch.ones_like(t), t], dim=1), keys, times, points=12
    )
    i = torch.arange(4, dtype=torch.float64)
    gap = times[:, None] - times
    mean = (times.sin()[:, None] - times.sin()) / gap + i * (times[:, None] + times) / 2
    expected = torch.where(gap == 0, times.cos() + i * times, mean)
    torch.testing.assert_close(continuous, expected, rtol=0, atol=1e-12)


def smooth_query(t: Tensor) -> Tensor:
    return torch.stack([2 + t.sin(), -(t / 2).exp(), 1 / (1 + t**2)], dim=1)


@pytest.mark.parametrize("p", [-1.0, 0.4, 2.0])
def test_lemma_1(p: float) -> None:
    point = torch.tensor(p, dtype=torch.float64)
    prescribed = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64)
    offset = smooth_query(point[None])[0] @ prescribed - (3 * point).cos()
    curve = theorem.curve_with_inner_product(smooth_query, lambda x: (3 * x).cos() + offset, point, prescribed)
    grid = torch.linspace(-3, 3, 601, dtype=torch.float64)
    product = (smooth_query(grid) * curve(grid)).sum(-1)
    torch.testing.assert_close(product, (3 * grid).cos() + offset, rtol=0, atol=1e-12)
    torch.testing.assert_close(curve(point[None])[0], prescribed, rtol=0, atol=1e-14)


def test_lemma_1_rejects_a_prescribed_value_with_another_product() -> None:
    point, prescribed = torch.tensor(0.0), torch.tensor([1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="Lemma 1"):
        theorem.curve_with_inner_product(smooth_query, torch.cos, point, prescribed)


def test_lemma_2_holds_at_every_time() -> None:
    start = torch.tensor(0.2, dtype=torch.float64)
    key = torch.tensor([0.5, 1.0, -0.7], dtype=torch.float64)
    offset = smooth_query(start[None])[0] @ key - start.sin()
    curve = theorem.key_curve(smooth_query, lambda t: t.sin() + offset, torch.cos, start, key)
    roots, weights = (torch.as_tensor(x) / 2 for x in np.polynomial.legendre.leggauss(30))
    for end in torch.linspace(-2, 2, 9, dtype=torch.float64):
        nodes = start + (end - start) * (roots + 0.5)
        mean = (smooth_query(nodes) * curve(nodes)).sum(-1) @ weights
        torch.testing.assert_close(mean, end.sin() + offset, rtol=0, atol=1e-11)


def test_natural_spline_derivative_and_straight_ends() -> None:
    times = torch.tensor([0.0, 0.4, 0.5, 1.3], dtype=torch.float64)
    values = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    value, slope = theorem.natural_spline(times, values)
    torch.testing.assert_close(value(times), values, rtol=0, atol=1e-14)
    grid = torch.linspace(-0.5, 1.8, 231, dtype=torch.float64)
    step = 1e-5
    torch.testing.assert_close((value(grid + step) - value(grid - step)) / (2 * step), slope(grid), rtol=0, atol=1e-5)
    assert value(times[:1] - 2).item() == pytest.approx(values[0].item() - 2 * slope(times[:1]).item())


@pytest.mark.parametrize("kind", KINDS)
def test_key_curves_are_continuously_differentiable_at_the_knots(kind: str) -> None:
    times, Q, K, attention, _ = make_case(kind, 6, 3, seed=1)
    times = torch.linspace(0, 1, 6, dtype=torch.float64)  # a close pair has a large, if continuous, second derivative
    around = torch.cat([times - 1e-8, times + 1e-8]).requires_grad_()
    for key in theorem.key_curves(theorem.query_curve(times, Q), times, K, attention):
        for component in key(around).T:
            (rate,) = torch.autograd.grad(component.sum(), around, retain_graph=True)
            torch.testing.assert_close(rate[:6], rate[6:], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["mercer", "mtan"])
def test_softmax_does_not_see_the_shift(kind: str, seed: int) -> None:
    times, Q, K, attention, embedding = make_case(kind, 12, 4, seed)
    plain = theorem.embedding_attention(Q, K, embedding)
    assert (plain - attention).abs().max() > 0.1
    torch.testing.assert_close(attention.softmax(-1), plain.softmax(-1), rtol=0, atol=1e-12)
    keys = theorem.key_curves(query := theorem.query_curve(times, Q), times, K, attention)
    continuous = theorem.continuous_attention_matrix(query, keys, times)
    torch.testing.assert_close(continuous.softmax(-1), plain.softmax(-1), rtol=0, atol=1e-8)


def test_mercer_embedding_by_hand() -> None:
    embedding = theorem.mercer_embedding(
        torch.tensor([0.5]), torch.tensor([2.0]), torch.tensor([[4.0, 9.0, 1.0, 1, 1]])
    )
    angle = torch.pi / 4
    expected = [2, 3 * np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle)]
    np.testing.assert_allclose(embedding[0], expected, atol=1e-6)


def test_mtan_embedding_by_hand() -> None:
    frequency, phase = torch.tensor([2.0, 3.0]), torch.tensor([0.1, 0.2])
    embedding = theorem.mtan_embedding(torch.tensor([0.5]), frequency, phase, torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
    np.testing.assert_allclose(embedding[0], [1.1, 2.2 + np.sin(1.7)], atol=1e-6)


def test_gsm_kernel_is_symmetric_with_unit_diagonal() -> None:
    times = torch.tensor([0.0, 0.1, 2.0], dtype=torch.float64)
    weights = torch.tensor([[3.0, 4.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    means = torch.tensor([[1.0, 2.0], [0.5, 1.0], [0.1, 0.3]], dtype=torch.float64)
    lengths = torch.tensor([[1.0, 0.5], [2.0, 1.0], [0.7, 3.0]], dtype=torch.float64)
    kernel = theorem.gsm_kernel(times, weights, means, lengths)
    torch.testing.assert_close(kernel, kernel.T)
    torch.testing.assert_close(kernel.diag(), torch.ones(3, dtype=torch.float64))
    by_hand = 0.6 * np.sqrt(4 / 5) * np.exp(-0.01 / 5) * np.cos(2 * np.pi * 0.05)
    assert kernel[0, 1].item() == pytest.approx(by_hand, abs=1e-14)


@pytest.mark.parametrize(
    ("second", "message"),
    [([-1.0, 2.0], r"components \[0\] of Q change sign"), ([0.0, 2.0], "zero"), ([-0.0, 2.0], "zero")],
)
def test_query_curve_rejects_what_the_theorem_does_not_cover(second: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        theorem.query_curve(torch.tensor([0.0, 1.0]), torch.tensor([[1.0, 1.0], second]))


def test_equal_times_are_rejected() -> None:
    times, ones = torch.tensor([0.0, 0.0]), torch.ones(2, 2)
    with pytest.raises(ValueError, match="increase"):
        theorem.query_curve(times, ones)
    with pytest.raises(ValueError, match="increase"):
        theorem.key_curves(lambda t: torch.ones(len(t), 2), times, ones, 2 * ones)


def test_diagonal_other_than_query_times_key_is_rejected() -> None:
    """Without the softmax shift the diagonal is Q_i·K_i + |Φ(t_i)|², which Lemma 2 does not allow."""
    times, Q, K, _, embedding = make_case("mercer", 5, 3, seed=0)
    with pytest.raises(ValueError, match="Lemma 1"):
        theorem.key_curves(theorem.query_curve(times, Q), times, K, theorem.embedding_attention(Q, K, embedding))


def test_the_example_reproduces_four_kinds_of_attention() -> None:
    command = [sys.executable, "-m", "examples.theorem"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    assert len(lines) == 12
    assert all(float(line[-1]) < 1e-10 for line in lines)
