"""Continuous attention reproduces four discrete attention matrices: the paper's theorem, by numbers.

Run from the root of the repository: python -m examples.theorem
"""

from __future__ import annotations

import torch
from torch import Tensor

from reproduction import theorem


def targets(times: Tensor, Q: Tensor, K: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Keys and attention matrix of each kind; mTAN attends by time only, so its keys are zero."""
    n = len(times)
    kernel = theorem.gsm_kernel(times, *torch.rand(3, n, 3) + 0.2)
    mercer = theorem.mercer_embedding(times, periods=torch.rand(2) + 0.2, coefficients=torch.rand(2, 5))
    mtan = theorem.mtan_embedding(times, 5 * torch.randn(6), torch.randn(6), torch.randn(6, 6))
    return {
        "vanilla": (K, theorem.vanilla_attention(Q, K)),
        "GSM kernel": (K, theorem.gsm_attention(Q, K, kernel)),
        "Mercer": (K, theorem.mercer_attention(Q, K, mercer)),
        "mTAN": (torch.zeros_like(K), theorem.mtan_attention(mtan)),
    }


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    print(f"{'attention':<12}{'N':>4}{'largest entry':>16}{'max error':>12}")
    for n in (5, 20, 50):
        times = torch.rand(n).sort().values
        Q, K = torch.randn(4).sign() * (0.1 + torch.rand(n, 4)), torch.randn(n, 4)
        query = theorem.query_curve(times, Q)
        for kind, (own_keys, attention) in targets(times, Q, K).items():
            keys = theorem.key_curves(query, times, own_keys, attention)
            error = (theorem.continuous_attention_matrix(query, keys, times) - attention).abs().max()
            print(f"{kind:<12}{n:>4}{attention.abs().max():>16.3f}{error:>12.1e}")


if __name__ == "__main__":
    main()
