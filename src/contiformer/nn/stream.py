"""A causal layer that is told its observations one after the other."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from contiformer.nn.fields import stack_fields
from contiformer.nn.layer import ContiFormerLayer

#: The longest step of the solver, in the model's clock: far below what a resolved trajectory needs.
LONGEST_STEP = 1 / 64


class LayerStream:
    """State of a causal layer after n observations; the next one costs O(n), not a new pass over all.

    Nothing that was computed of the past changes with a new observation at t. Of each key i the layer keeps
    ``k_i(t)``, ``v_i(t)`` and the integrals ``∫_{t_i}^t q·k_i`` (by head) and ``∫_{t_i}^t v_i``; to go on from t to t'
    it follows all trajectories over ``[t, t']`` (classical Runge-Kutta) and adds what the integrals gain there
    (Simpson's rule, the middle from the cubic through both ends and their derivatives).

    Args:
        layer: causal, with linear interpolation of the query and the exact rule.
    """

    def __init__(self, layer: ContiFormerLayer) -> None:
        rule, attention = layer.attention.rule, layer.attention
        if not can_stream(layer):
            raise ValueError(
                "only a causal layer with rule='exact', interpolation='linear' and continuous, normalised scores and "
                f"values can be told its observations one after the other, got {rule} and {attention.interpolation!r}"
            )
        self.layer, self.heads = layer, attention.n_heads
        weight = attention.q_proj.weight
        with torch.no_grad():
            self.field = stack_fields([attention.key_field, attention.value_field], weight.dtype)
        # keys and values [2, n, 1, d], and their derivatives
        self.curves = self.slopes = weight.new_zeros(2, 0, 1, attention.d_model)
        self.qk_integral = weight.new_zeros(0, self.heads)
        self.v_integral = weight.new_zeros(0, attention.d_model)
        self.begun = weight.new_zeros(0, dtype=torch.float64)
        self.query = weight.new_zeros(attention.d_model)
        self.now = 0.0

    @torch.no_grad()
    def append(self, x: Float[Tensor, " d"], time: float) -> Float[Tensor, " d"]:
        """The layer's output at a new observation, which is not before the last one."""
        attention = self.layer.attention
        normed = self.layer.entry_norm(x)
        query, key, value = (proj(normed) for proj in (attention.q_proj, attention.k_proj, attention.v_proj))
        if len(self.begun):
            self.curves, self.slopes, self.qk_integral, self.v_integral = self._followed(time, query)
        fresh = torch.stack([key, value])[:, None, None]
        self.slopes = torch.cat([self.slopes, self._slope(time, fresh)], 1)
        self.curves = torch.cat([self.curves, fresh], 1)
        self.qk_integral = torch.cat([self.qk_integral, self.qk_integral.new_zeros(1, self.heads)])
        self.v_integral = torch.cat([self.v_integral, torch.zeros_like(value)[None]])
        self.begun = torch.cat([self.begun, self.begun.new_tensor([time])])
        self.query, self.now = query, time
        return self._output(self._mixed(query, self.curves, self.qk_integral, self.v_integral, time), x)

    @torch.no_grad()
    def at(self, base: Float[Tensor, " d"], time: float) -> Float[Tensor, " d"]:
        """The output at a later time at which nothing is observed, with the residual there; nothing is remembered."""
        if not len(self.begun):
            return self._output(base.new_zeros(base.shape), base)
        curves, _, qk_integral, v_integral = self._followed(time, self.query)
        return self._output(self._mixed(self.query, curves, qk_integral, v_integral, time), base)

    def _output(self, mixed: Tensor, base: Tensor) -> Float[Tensor, " d"]:
        return self.layer.after_attention(self.layer.attention.out_proj(mixed), base)

    def _mixed(
        self, query: Tensor, curves: Tensor, qk_integral: Tensor, v_integral: Tensor, time: float
    ) -> Float[Tensor, " d"]:
        key, value = curves.squeeze(2)
        gap = (time - self.begun).to(key.dtype).unsqueeze(-1)
        moved = gap > 0
        safe = torch.where(moved, gap, 1.0)
        score = torch.where(moved, qk_integral / safe, self._by_head(query * key))
        mean = torch.where(moved, v_integral / safe, value)
        weight = (score * self.layer.attention.rule.scale(len(query) // self.heads)).softmax(0)
        return (weight.unsqueeze(-1) * mean.unflatten(-1, (self.heads, -1))).sum(0).flatten()

    def _slope(self, time: float, curves: Tensor) -> Float[Tensor, "two rows 1 d"]:
        return self.field(curves.new_full((1, 1, 1), time), curves)

    def _followed(self, time: float, query: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Trajectories and integrals at a later time, the query going evenly to its new value there."""
        length = time - self.now
        if length < 0:
            raise ValueError(f"times must not decrease: got {time:g} after {self.now:g}")
        curves, slope, qk_integral, v_integral = self.curves, self.slopes, self.qk_integral, self.v_integral
        steps = max(1, math.ceil(length / LONGEST_STEP))
        h = length / steps
        for step in range(steps):
            t = self.now + h * step
            second = self._slope(t + h / 2, curves + h / 2 * slope)
            third = self._slope(t + h / 2, curves + h / 2 * second)
            fourth = self._slope(t + h, curves + h * third)
            end = curves + h / 6 * (slope + 2 * (second + third) + fourth)
            after = self._slope(t + h, end)
            middle = (curves + end) / 2 + h / 8 * (slope - after)
            q = [self.query + (query - self.query) * ((step + share) / steps) for share in (0.0, 0.5, 1.0)]
            (key, value), (key_middle, value_middle), (key_end, value_end) = (
                x.squeeze(2) for x in (curves, middle, end)
            )
            qk_integral = qk_integral + h / 6 * self._by_head(q[0] * key + 4 * q[1] * key_middle + q[2] * key_end)
            v_integral = v_integral + h / 6 * (value + 4 * value_middle + value_end)
            curves, slope = end, after
        return curves, slope, qk_integral, v_integral

    def _by_head(self, x: Float[Tensor, "rows d"]) -> Float[Tensor, "rows heads"]:
        return x.unflatten(-1, (self.heads, -1)).sum(-1)


def can_stream(layer: ContiFormerLayer) -> bool:
    """Whether a layer is of the kind that can be told its observations one after the other."""
    rule = layer.attention.rule
    plain = rule.rule == "exact" and rule.continuous_scores and rule.continuous_values and rule.normalized
    return rule.causal and plain and layer.attention.interpolation == "linear"
