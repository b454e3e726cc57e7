"""Where and when numbers were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from contiformer.experiments.store import Row


def provenance(rows: Collection[Row]) -> str:
    """Machines, threads, versions, commits and dates of all of these rows, in one sentence or two."""
    facts = [row["machine"] for row in rows]
    machines = Counter(_machine(one) for one in facts)
    on = ", ".join(f"{name} ({n} cells)" if len(machines) > 1 else name for name, n in machines.most_common())
    days = sorted(str(one["date"])[:10] for one in facts)
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    commits = sorted({str(one["commit"]) for one in facts if one["commit"]})
    torch = sorted({str(one["torch"]) for one in facts})
    hours = sum(float(row["seconds"]) for row in rows if "taken_from" not in row) / 3600
    took = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"
    source = f", commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}" if commits else ""
    count = "1 cell" if len(facts) == 1 else f"{len(facts)} cells"
    return f"{count}, {took} in all, on {on}; torch {', '.join(torch)}{source}; {when}."


def _machine(facts: dict[str, object]) -> str:
    threads = facts["threads"]
    return f"{facts['cpu']}, {threads} thread{'' if threads == 1 else 's'}"
