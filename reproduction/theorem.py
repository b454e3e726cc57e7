"""The Universal Attention Approximation Theorem, made constructive.

For queries ``Q`` and keys ``K`` [N, d] at times ``t_1 < ... < t_N`` and a target matrix ``Attn`` [N, N], there are key
curves ``k_i`` with ``k_i(t_i) = K_i`` such that the continuous attention

    α_i(t) = 1 / (t - t_i) ∫_{t_i}^t q(τ)·k_i(τ) dτ,    α_i(t_i) = q(t_i)·k_i(t_i)

equals the target: ``α_i(t_j) = Attn_{ji}``. The proof is followed step by step: a C¹ query path ``q`` through ``Q``
(:func:`query_curve`), a natural cubic spline ``h_i`` through column ``i`` of the target, and a key curve with
``α_i(t) = h_i(t)`` for every ``t`` (Lemma 2, :func:`key_curve`, by Lemma 1, :func:`curve_with_inner_product`).

The proof uses more than the theorem states: distinct times, diagonals ``Attn_{ii} = Q_i·K_i``, and components of ``Q``
that keep their sign from row to row, without which no continuous ``q`` has only non-zero components.

Example:
    >>> import torch
    >>> from reproduction.theorem import continuous_attention_matrix, key_curves, query_curve, vanilla_attention
    >>> times = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    >>> Q, K = 1 + torch.rand(3, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    >>> target = vanilla_attention(Q, K)
    >>> query = query_curve(times, Q)
    >>> keys = key_curves(query, times, K, target)
    >>> torch.allclose(continuous_attention_matrix(query, keys, times), target, rtol=0, atol=1e-12)
    True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.paths import PiecewisePolynomial, interpolate
from reproduction.experiments import Budget, Cell, Experiment, Metric, Outcome, Protocol

#: Of the experiment.
SEEDS = (0, 1, 2)
POINTS, WIDTH, MIXTURES = 8, 4, 3

Function = Callable[[Float[Tensor, " points"]], Float[Tensor, " points"]]
Curve = Callable[[Float[Tensor, " points"]], Float[Tensor, "points d"]]


def vanilla_attention(Q: Float[Tensor, "n d"], K: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """``Attn_{ji} = Q_j·K_i``."""
    return Q @ K.T


def gsm_attention(
    Q: Float[Tensor, "n d"], K: Float[Tensor, "n d"], kernel: Float[Tensor, "n n"]
) -> Float[Tensor, "n n"]:
    """Kernelised attention ``Attn_{ji} = Q_j·K_i k(t_j, t_i)`` with the kernel matrix of :func:`gsm_kernel`."""
    return Q @ K.T * kernel


def gsm_kernel(
    times: Float[Tensor, " n"],
    weights: Float[Tensor, "n m"],
    means: Float[Tensor, "n m"],
    lengthscales: Float[Tensor, "n m"],
) -> Float[Tensor, "n n"]:
    """Generalised spectral mixture kernel of NSTKA between all pairs of times.

    ``k(x, x') = Σ_m φ_m(x) φ_m(x') √(2 l l' / (l² + l'²)) exp(-(x - x')² / (l² + l'²)) cos 2π(μ x - μ' x')``
    with ``l = l_m(x)``, ``l' = l_m(x')`` and likewise ``μ``; the arguments are the values of ``φ``, ``μ``, ``l`` at the
    times. As ``k(x, x) = Σ_m φ_m(x)²`` and the theorem needs ``k(x, x) = 1``, each row of weights is scaled to norm 1.
    """
    phi = weights / weights.norm(dim=1, keepdim=True)
    length, other = lengthscales[:, None], lengthscales[None]
    spread = length**2 + other**2
    distance = (times[:, None] - times[None])[..., None]
    gibbs = (2 * length * other / spread).sqrt() * torch.exp(-(distance**2) / spread)
    phase = means * times[:, None]
    wave = torch.cos(2 * torch.pi * (phase[:, None] - phase[None]))
    return (phi[:, None] * phi[None] * gibbs * wave).sum(-1)


def mercer_embedding(
    times: Float[Tensor, " n"], periods: Float[Tensor, " k"], coefficients: Float[Tensor, "k terms"]
) -> Float[Tensor, "n embedding"]:
    """Mercer's ``Φ(t)``: for each ω of ``periods`` ``[√c_1, √c_{2j} cos(jπt/ω), √c_{2j+1} sin(jπt/ω), ...]``.

    ``coefficients`` are not negative and odd in number, one row for each ω; the embedding has k·terms components.
    """
    order = torch.arange(1, coefficients.shape[1] // 2 + 1).to(times)
    angle = torch.pi * order * (times[:, None] / periods)[..., None]
    waves = torch.stack([angle.cos(), angle.sin()], dim=-1).flatten(-2)
    return (coefficients.sqrt() * torch.cat([torch.ones_like(waves[..., :1]), waves], dim=-1)).flatten(1)


def mtan_embedding(
    times: Float[Tensor, " n"],
    frequencies: Float[Tensor, " d"],
    phases: Float[Tensor, " d"],
    weight: Float[Tensor, "d embedding"],
) -> Float[Tensor, "n embedding"]:
    """mTAN's ``Φ(t) = φ(t) w`` with ``φ_0 = ω_0 t + phase_0`` and ``φ_m = sin(ω_m t + phase_m)`` for ``m > 0``."""
    angle = times[:, None] * frequencies + phases
    return torch.cat([angle[:, :1], angle[:, 1:].sin()], dim=1) @ weight


def embedding_attention(
    Q: Float[Tensor, "n d"], K: Float[Tensor, "n d"], embedding: Float[Tensor, "n e"]
) -> Float[Tensor, "n n"]:
    """Attention of queries and keys with the embedded time appended: ``Q_j·K_i + Φ(t_j)·Φ(t_i)``."""
    return Q @ K.T + embedding @ embedding.T


def mercer_attention(
    Q: Float[Tensor, "n d"], K: Float[Tensor, "n d"], embedding: Float[Tensor, "n e"]
) -> Float[Tensor, "n n"]:
    """``Attn_{ji} = Q_j·K_i + Φ(t_j)·(Φ(t_i) - Φ(t_j))``, with the matrix of :func:`mercer_embedding`.

    It is :func:`embedding_attention` with ``|Φ(t_j)|²`` taken from row ``j``, which the softmax of the row does not
    see, but which makes the diagonal ``Q_i·K_i``.
    """
    return embedding_attention(Q, K, embedding) - embedding.square().sum(1, keepdim=True)


def mtan_attention(embedding: Float[Tensor, "n e"]) -> Float[Tensor, "n n"]:
    """``Attn_{ji} = Φ(t_j)·(Φ(t_i) - Φ(t_j))``, with the matrix of :func:`mtan_embedding`.

    mTAN attends by time only, which the paper writes as ``Q = K = 0``. Its own theorem forbids ``Q = 0``. But
    ``K = 0`` alone gives ``Q_j·K_i = 0``, so any ``Q`` without zeros will do, with ``K = 0``, for this target.
    """
    nothing = torch.zeros_like(embedding)
    return mercer_attention(nothing, nothing, embedding)


def query_curve(times: Float[Tensor, " n"], Q: Float[Tensor, "n d"]) -> Curve:
    """A C¹ path with ``q(t_j) = Q_j`` and no component that is ever zero.

    Between knots ``q = Q_n + (3s² - 2s³)(Q_{n+1} - Q_n)``, outside them the end value. It lies between its
    neighbouring knots, so it keeps their sign; a natural spline would cross zero.

    Raises:
        ValueError: if there is no such path (a component of ``Q`` is zero or changes sign), or times do not increase.
    """
    _check_increasing(times)
    if (Q == 0).any():
        raise ValueError("the theorem needs |Q_i|_0 = d, but some component of Q is zero")
    changing = (Q.sign() != Q[:1].sign()).any(0).nonzero().flatten().tolist()
    if changing:
        raise ValueError(
            f"components {changing} of Q change sign: every continuous path through Q has a zero there, "
            "so the hypothesis |q(t)|_0 = d of both lemmas cannot hold"
        )
    rise = torch.cat([Q.diff(dim=0), torch.zeros_like(Q[:1])])
    path = PiecewisePolynomial(times[None], torch.stack([Q, torch.zeros_like(Q), 3 * rise, -2 * rise], dim=1)[None])
    return lambda t: path(t[None])[0]


def curve_with_inner_product(u: Curve, w: Function, p: Float[Tensor, ""], v_p: Float[Tensor, " d"]) -> Curve:
    """Lemma 1: a C¹ curve ``v`` with ``u(x)·v(x) = w(x)`` for every ``x`` and ``v(p) = v_p``.

    ``v(x) = u(x) w(x) / |u(x)|² + c / u(x)`` with ``c = (v_p - u(p) w(p) / |u(p)|²) u(p)``, products and quotients of
    vectors taken by component. The components of ``c`` sum to zero, so the last term is orthogonal to ``u(x)``; it is
    why no component of ``u`` may vanish. (The paper's choice. The projection of ``v_p`` off ``u(x)`` is orthogonal too,
    and needs only ``u(x) ≠ 0``.)

    Raises:
        ValueError: if ``u(p)·v_p`` is not ``w(p)``.
    """

    def parallel(x: Tensor) -> Tensor:
        base = u(x)
        return base * (w(x) / base.square().sum(-1)).unsqueeze(-1)

    at_p = p.reshape(1)
    base, aim = u(at_p)[0], w(at_p)[0]
    scale = (base * v_p).abs().sum() + aim.abs() + 1
    if (base @ v_p - aim).abs() > torch.finfo(v_p.dtype).eps ** 0.5 * scale:
        raise ValueError(f"Lemma 1 needs u(p)·v(p) = w(p), got {float(base @ v_p)} and {float(aim)}")
    c = (v_p - parallel(at_p)[0]) * base
    return lambda x: parallel(x) + c / u(x)


def key_curve(query: Curve, f: Function, slope: Function, time: Float[Tensor, ""], key: Float[Tensor, " d"]) -> Curve:
    """Lemma 2: the key curve with ``k(t_i) = K_i`` whose continuous attention is ``α_i(t) = f(t)`` for every ``t``.

    ``f`` is C², ``slope`` is its derivative. Deriving ``α_i(t) (t - t_i) = f(t) (t - t_i)`` gives the product that
    Lemma 1 needs, ``q(t)·k(t) = f'(t) (t - t_i) + f(t)``.

    Raises:
        ValueError: if ``f(t_i)`` is not ``q(t_i)·K_i``.
    """
    return curve_with_inner_product(query, lambda t: slope(t) * (t - time) + f(t), time, key)


def key_curves(
    query: Curve, times: Float[Tensor, " n"], K: Float[Tensor, "n d"], attention: Float[Tensor, "n n"]
) -> list[Curve]:
    """The theorem: curves ``k_1 ... k_N`` with ``k_i(t_i) = K_i`` and ``α_i(t_j) = attention[j, i]``.

    Raises:
        ValueError: if a diagonal entry is not ``q(t_i)·K_i``, or the times do not increase.
    """
    _check_increasing(times)
    return [
        key_curve(query, *natural_spline(times, column), time, key) for time, key, column in zip(times, K, attention.T)
    ]


def natural_spline(times: Float[Tensor, " n"], values: Float[Tensor, " n"]) -> tuple[Function, Function]:
    """The natural cubic spline through ``values`` and its derivative, C² on the whole line.

    Outside the knots it goes on as a straight line: the curvature of a natural spline ends in zero.
    """
    spline = interpolate("cubic", times[None], values[None, :, None], distinct=True)
    power = torch.arange(1, 4).to(values)
    rates = spline.coefficients[0, :-1, 1:, 0] * power / times.diff()[:, None]
    end = torch.zeros_like(power)
    end[0] = rates[-1:].sum()
    derivative = PiecewisePolynomial(times[None], torch.cat([rates, end[None]])[None, ..., None])

    def slope(t: Tensor) -> Tensor:
        return derivative(t[None])[0, :, 0]

    def value(t: Tensor) -> Tensor:
        return spline(t[None])[0, :, 0] + slope(t) * (t - t.clamp(times[0], times[-1]))

    return value, slope


def continuous_attention_matrix(
    query: Curve, keys: Sequence[Curve], times: Float[Tensor, " n"], points: int = 8
) -> Float[Tensor, "n n"]:
    """``α_i(t_j)`` in row ``j`` and column ``i``, by Gauss-Legendre with ``points`` nodes on each cell between knots.

    Nothing is assumed of the curves. Those of :func:`key_curves` have a cubic ``q·k_i`` on each cell, for which the
    rule is exact from two nodes on.
    """
    roots, weights = (torch.from_numpy(x).to(times) / 2 for x in np.polynomial.legendre.leggauss(points))
    width = times.diff()
    nodes = (times[:-1, None] + width[:, None] * (roots + 0.5)).flatten()
    q = query(nodes)
    products = torch.stack([(q * key(nodes)).sum(-1) for key in keys])
    cells = products.unflatten(1, (-1, points)) @ weights * width
    # Only the cells between t_i and t_j are added: the difference of two running integrals would cancel for close times
    passed = times.new_ones(len(times), len(width)).tril(-1)
    integral = torch.einsum("ic,jic->ji", cells, passed[:, None] - passed[None])
    own = (query(times) * torch.cat([key(t[None]) for key, t in zip(keys, times)])).sum(-1)
    gap = times[:, None] - times[None]
    return torch.where(gap == 0, own.diag(), integral / torch.where(gap == 0, 1.0, gap))


def _check_increasing(times: Float[Tensor, " n"]) -> None:
    if not (times.diff() > 0).all():
        raise ValueError("times must increase strictly: continuous attention has one value at a time")


def grid(protocol: Protocol) -> list[Cell]:
    """The four kinds of attention that the paper names."""
    return [
        Cell("theorem", "generated", f"{POINTS}points", kind, seed, protocol)
        for seed in SEEDS
        for kind in ("vanilla", "kernelised", "mercer", "mtan")
    ]


def run(cell: Cell, budget: Budget, verbose: int) -> Outcome:
    """Build the curves of the proof and compare the attention they give with its target."""
    generator = torch.Generator().manual_seed(cell.seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    times = random(POINTS).sort().values
    # components that keep their sign: the proof needs a path without zeros
    Q, K = 0.5 + random(POINTS, WIDTH), 2 * random(POINTS, WIDTH) - 1
    if cell.model == "vanilla":
        target = vanilla_attention(Q, K)
    elif cell.model == "mercer":
        target = mercer_attention(Q, K, mercer_embedding(times, 0.5 + random(2), random(2, 5)))
    elif cell.model == "mtan":
        K = torch.zeros_like(K)
        target = mtan_attention(mtan_embedding(times, 10 * random(6), 6 * random(6), 2 * random(6, 6) - 1))
    else:
        kernel = gsm_kernel(times, random(POINTS, MIXTURES), random(POINTS, MIXTURES), 0.5 + random(POINTS, MIXTURES))
        target = gsm_attention(Q, K, kernel / kernel.diagonal().sqrt().outer(kernel.diagonal().sqrt()))
    query = query_curve(times, Q)
    found = continuous_attention_matrix(query, key_curves(query, times, K, target), times)
    return Outcome({"largest_error": float((found - target).abs().max()), "scale": float(target.abs().max())})


EXPERIMENT = Experiment(
    name="theorem",
    title="Universal attention approximation: the curves of the proof, built",
    metrics=(Metric("largest_error", "largest error", "min", ".1e"),),
    grid=grid,
    run=run,
    ours="",
    note="The largest difference between the target matrix and the one that the curves give.",
)
