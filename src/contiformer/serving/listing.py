"""The list of series: searched, sorted and handed out page by page."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np

from contiformer.serving.review import Review

Sort = Literal["order", "id", "length", "surprise"]
#: Ids of a set that is read from disk when needed are known for so many series.
_MOST_READ = 5_000


class Listing:
    """Pages of the series of a model's data.

    Args:
        data: a SeriesSet or EventSet.
        review: knows surprise and answers.
    """

    def __init__(self, data: Any, review: Review) -> None:
        self.review = review
        self.lengths = np.asarray(data.lengths)
        known = data if not data.lazy or len(data) <= _MOST_READ else data[:_MOST_READ]
        items = [(n if one.id is None else one.id, one.label) for n, one in enumerate(known)]
        items += [(n, None) for n in range(len(items), len(data))]
        self.labels = [label for _, label in items]
        self.names = [str(name) for name, _ in items]
        self._folded = [name.casefold() for name in self.names]
        self._by_id = np.array(sorted(range(len(items)), key=lambda n: _natural(self.names[n])), np.int64)

    def page(
        self, search: str, sort: Sort, descending: bool, offset: int, limit: int, cell: tuple[int, int] | None
    ) -> dict[str, Any]:
        """The series from ``offset`` on, and how many there are.

        Args:
            search: part of the id, in any case.
            sort: "order": as in the data. Series whose surprise is not known are last.
            descending: the largest first.
            offset, limit: of the page.
            cell: only series of this class that got this answer.
        """
        review = self.review
        order = self._by_id if sort == "id" else np.arange(len(self.names))
        if sort == "length":
            order = np.argsort(-self.lengths if descending else self.lengths, kind="stable")
        elif sort == "surprise":
            found = review.surprise
            order = np.argsort(np.where(np.isnan(found), np.inf, -found if descending else found), kind="stable")
        elif descending:
            order = order[::-1]
        if cell is not None:
            order = order[review.cell(*cell)[order]]
        if search:
            wanted = search.casefold()
            order = np.array([n for n in order.tolist() if wanted in self._folded[n]], np.int64)
        return {
            "total": len(order),
            "items": [self._item(n) for n in order[offset : offset + limit].tolist()],
            "review": review.progress(),
        }

    def _item(self, n: int) -> dict[str, Any]:
        surprise, label = self.review.surprise[n], self.labels[n]
        return {
            "n": n,
            "id": self.names[n],
            "length": int(self.lengths[n]),
            "label": None if isinstance(label, float) and not np.isfinite(label) else label,
            "surprise": None if np.isnan(surprise) else float(surprise),
            "answer": self.review.answers[n],
        }


def _natural(name: str) -> list[tuple[int, Any]]:
    """A key that sorts p2 before p10.

    Example:
        >>> from contiformer.serving.listing import _natural
        >>> sorted(["p10", "p2"], key=_natural)
        ['p2', 'p10']
    """
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]
