"""The multivariate Hawkes process with exponential kernels."""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor, nn

from contiformer.data.batch import EventBatch
from contiformer.data.events import EventSet
from contiformer.data.scaling import EventScaling
from contiformer.tasks.events.encoder import waits_before
from contiformer.tasks.events.intensities import mean_rates
from contiformer.tasks.events.intensity import IntensityModel, Memory, PerEvent, PerMoment, PerType

Decay = Literal["pair", "shared"]
#: With more types than this all decays are one by default.
MANY = 12
#: A parameter that is 0 is kept as this: its logarithm is finite, in float32 too.
_NOTHING = 1e-30
#: Numbers in the largest array that is made at once.
_AT_ONCE = 2**22


class HawkesModel(IntensityModel):
    """``λ_k(t) = μ_k + Σ_{j: t_j < t} α[k, k_j] exp(-β[k, k_j] (t - t_j))``: every event makes others more likely.

    From Hawkes, "Spectra of some self-exciting and mutually exciting point processes" (Biometrika 1971); the recursion
    is Ozaki's (1979). The parameters are positive, as exponentials of what is learned. With

        R_i[k, j] = exp(-β[k, j] (t_i - t_{i-1})) R_{i-1}[k, j] + α[k, j] 1{k_i = j}

    the intensities after event i are ``μ_k + Σ_j R_i[k, j] exp(-β[k, j] s)`` and their integral over the wait is
    ``μ_k s + Σ_j R_i[k, j] / β[k, j] (1 - exp(-β[k, j] s))``.

    The history begins with the first event of a sequence, which is not scored. Of events at one time the later in the
    order is excited by the earlier, as in all models here; in :class:`~contiformer.data.synthetic.Hawkes` only earlier
    times count. An untrained model has the mean rates of the training data, half of the events without a cause.

    Args:
        decay: "pair": one β for each pair of types; "shared": one for all, with a memory of K numbers per event.

    Shapes: memory "excitation" [B, L, K, J] with J = K for "pair" and J = 1 for "shared" (the sum over j).
    """

    def __init__(self, scaling: EventScaling, *, decay: Decay = "pair") -> None:
        super().__init__()
        if decay not in ("pair", "shared"):
            raise ValueError(f"decay must be 'pair' or 'shared', got {decay!r}")
        self.num_types, self.decay = len(scaling.counts), decay
        K = self.num_types
        half = mean_rates(scaling) / 2
        self.log_mu = nn.Parameter(half.log())
        self.log_alpha = nn.Parameter(half.log().unsqueeze(-1).repeat(1, K))
        self.log_beta = nn.Parameter(torch.zeros((K, K) if decay == "pair" else ()))

    def fit_directly(self, training: EventSet) -> bool:
        """Maximum likelihood by :func:`~contiformer.tasks.events.hawkes_fit.fit_hawkes`."""
        # SciPy's optimisers take half a second to import
        from contiformer.tasks.events.hawkes_fit import fit_hawkes  # noqa: PLC0415

        self.load_state_dict(fit_hawkes(training, decay=self.decay).model.state_dict())
        return True

    @classmethod
    def build(cls, scaling: EventScaling, options: dict[str, Any]) -> HawkesModel:
        """Without sizes; with many types there is too little to learn a decay for each pair."""
        own = {name: value for name, value in options.items() if name not in ("d_model", "n_layers", "dropout")}
        return cls(scaling, **{"decay": "pair" if len(scaling.counts) <= MANY else "shared", **own})

    @property
    def mu(self) -> Float[Tensor, " types"]:
        """Events per mean wait that have no cause."""
        return self.log_mu.exp()

    @property
    def alpha(self) -> Float[Tensor, "types types"]:
        """``α[k, j]``: the jump in the intensity of type k after an event of type j."""
        return self.log_alpha.exp()

    @property
    def beta(self) -> Float[Tensor, "types causes"]:
        """Decay per mean wait: [K, K], or [K, 1] if all are the same."""
        return self.log_beta.exp() if self.decay == "pair" else self.log_beta.exp().expand(self.num_types, 1)

    @torch.no_grad()
    def set(self, mu: ArrayLike, alpha: ArrayLike, beta: ArrayLike) -> HawkesModel:
        """Take these parameters, per scaled time; a single β will do for all pairs."""
        given = ((self.log_mu, mu), (self.log_alpha, alpha), (self.log_beta, beta))
        for parameter, value in given:
            new = torch.as_tensor(value, dtype=torch.float64).clamp(min=_NOTHING).log()
            parameter.copy_(new.expand(parameter.shape))
        return self

    def remember(self, events: EventBatch) -> Memory:
        alpha, beta, K = self.alpha, self.beta, self.num_types
        if not events.times.shape[1]:
            return Memory({"excitation": alpha.new_zeros(len(events), 0, *beta.shape)})
        waits = waits_before(events, alpha.dtype)[..., None, None]
        if self.decay == "pair":
            one_hot = nn.functional.one_hot(events.types, K).to(alpha.dtype).unsqueeze(2)
            jumps = (row * alpha for row in one_hot.unbind(1))  # [B, K, K], one event at a time: all would be large
        else:
            jumps = (row.unsqueeze(-1) for row in alpha.T[events.types].unbind(1))
        excitation, rows = next(jumps), []
        rows.append(excitation)
        for wait, jump in zip(waits.unbind(1)[1:], jumps, strict=True):
            excitation = torch.addcmul(jump, excitation, torch.exp(-beta * wait))
            rows.append(excitation)
        return Memory({"excitation": torch.stack(rows, 1)})

    def rates(self, memory: Memory, elapsed: PerMoment) -> PerType:
        return self.mu + self._caused(memory, elapsed, integrated=False)

    def integral(self, memory: Memory, elapsed: PerMoment) -> PerMoment:
        return self.mu.sum() * elapsed + self._caused(memory, elapsed, integrated=True).sum(-1)

    def bound(self, memory: Memory, low: PerEvent, high: PerEvent) -> PerEvent:
        """The value at ``low``: until the next event intensities only fall."""
        return self.total(memory, low.unsqueeze(-1)).squeeze(-1)

    def _caused(self, memory: Memory, elapsed: PerMoment, *, integrated: bool) -> PerType:
        """The part of earlier events, summed over causing types in pieces that fit into memory."""
        excitation, beta = memory["excitation"].unsqueeze(2), self.beta
        size = max(1, _AT_ONCE // max(1, elapsed.numel() * self.num_types))
        result: Tensor | None = None
        for first in range(0, beta.shape[1], size):
            which = slice(first, first + size)
            decay = beta[:, which]
            exponent = elapsed[..., None, None] * decay
            kernel = -torch.expm1(-exponent) / decay if integrated else torch.exp(-exponent)
            part = (excitation[..., which] * kernel).sum(-1)
            result = part if result is None else result + part
        assert result is not None
        return result

    def extra_repr(self) -> str:
        return f"num_types={self.num_types}, decay={self.decay!r}"
