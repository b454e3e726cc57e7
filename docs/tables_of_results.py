"""Tables of the result files, for the pages that show them."""

import json
from pathlib import Path
from statistics import mean, stdev

RESULTS = Path(__file__).parents[1] / "reproduction" / "results"
BENCHMARKS = Path(__file__).parents[1] / "benchmarks" / "results"


def accuracy() -> None:
    """Print the accuracy benchmark: means over seeds, with the number of seeds."""
    rows = json.loads((BENCHMARKS / "accuracy.json").read_text())
    cases: dict[tuple[str, str], list[dict[str, float]]] = {}
    for row in rows:
        cases.setdefault((row["case"], row["protocol"]), []).append(row["metrics"])
    print("| case | protocol | metrics | seeds |")
    print("|---|---|---|---|")
    for (case, protocol), metrics in sorted(cases.items()):
        shown = ", ".join(f"{name} {_spread([one[name] for one in metrics])}" for name in metrics[0] if name != "seconds")
        print(f"| {case} | {protocol} | {shown} | {len(metrics)} |")
    print()


def _spread(values: list[float]) -> str:
    return f"{mean(values):.3g}" + (f" ± {stdev(values):.1g}" if len(values) > 1 else "")


def speed() -> None:
    """Print the cost of continuous attention beside PyTorch's transformer layer."""
    document = json.loads((BENCHMARKS / "attention.json").read_text())
    machine = document["machine"]
    print("| batch × length, width | model | training | inference | peak memory |")
    print("|---|---|---:|---:|---:|")
    for row in document["rows"]:
        training, inference = row.get("training"), row.get("inference")
        if not isinstance(training, dict):
            continue
        shape = f"{row['batch']} × {row['length']}, {row['d_model']}"
        memory = "" if row.get("peak_mb") is None else f"{row['peak_mb']:.0f} MB"
        second = "" if inference is None else f"{inference['ratio']:.1f}"
        print(f"| {shape} | {row['contender']} | {training['ratio']:.1f} | {second} | {memory} |")
    print(f"\n{machine['cpu']}, {machine['threads']} threads, commit {machine['commit']}.\n")
