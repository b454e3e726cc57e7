"""The recurrence of the neural Hawkes process; ``test_models`` compares it with the paper's formulas."""

import torch
from torch import nn

from contiformer.tasks.events.nhp import decaying_cells


def test_mixed_precision_does_not_reach_the_recurrence():
    gates, waits, from_state = torch.randn(5, 2, 21), torch.rand(5, 2) * 3, nn.Linear(3, 21, bias=False)
    expected = decaying_cells(gates.bfloat16().float(), waits, from_state)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(decaying_cells(gates.bfloat16(), waits, from_state), expected)
