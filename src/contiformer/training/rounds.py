"""Training in rounds: the stretches between two validations and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contiformer.data.loader import Loader

#: A round is an epoch, but no more steps than this, so that little is lost when the process dies.
LONGEST = 500


class Rounds:
    """A loader as an endless stream, handed out in rounds of equally many steps.

    Iterating again goes on where the last round ended, also in another process that has loaded the state.
    """

    def __init__(self, loader: Loader, longest: int | None = None) -> None:
        self.loader = loader
        self.steps = min(len(loader), LONGEST if longest is None else longest)
        self._stream: Iterator[Any] | None = None

    def __len__(self) -> int:
        """Steps in a round."""
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        """One round."""
        if self._stream is None:
            self._stream = self._endless()
        for _ in range(self.steps):
            yield next(self._stream)

    def _endless(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    # not called state_dict: Lightning would take the state into its own hands, and does not give it back to a training
    # that goes on after a whole round

    def state(self) -> dict[str, Any]:
        """Where the stream is."""
        return self.loader.state_dict()

    def go_to(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.loader.load_state_dict(state)
        self._stream = None
