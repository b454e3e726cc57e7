"""Tables of the result files, for the pages that show them."""

import json
from pathlib import Path
from statistics import mean, stdev

RESULTS = Path(__file__).parents[1] / "reproduction" / "results"
BENCHMARKS = Path(__file__).parents[1] / "benchmarks" / "results"
_MODULES = {
    "ours": "`ContinuousAttention`",
    "headwise": "with a field for each head",
    "listing": "in PyTorch, without the kernel",
    "compiled": "that, under `torch.compile`",
}


def accuracy() -> str:
    """Table of the accuracy benchmark: means over seeds, with the number of seeds."""
    rows = json.loads((BENCHMARKS / "accuracy.json").read_text())
    cases: dict[tuple[str, str], list[dict[str, float]]] = {}
    for row in rows:
        cases.setdefault((row["case"], row["protocol"]), []).append(row["metrics"])
    lines = ["| case | protocol | metrics | seeds |", "|---|---|---|---|"]
    for (case, protocol), metrics in sorted(cases.items()):
        shown = ", ".join(
            f"{name} {_spread([one[name] for one in metrics])}" for name in metrics[0] if name != "seconds"
        )
        lines.append(f"| {case} | {protocol} | {shown} | {len(metrics)} |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{mean(values):.3g}" + (f" ± {stdev(values):.1g}" if len(values) > 1 else "")


def speed() -> str:
    """Table of the cost of continuous attention beside PyTorch's transformer layer."""
    document = json.loads((BENCHMARKS / "attention.json").read_text())
    machine = document["machine"]
    lines = ["| batch x length, width | module | training | inference | peak memory |", "|---|---|---:|---:|---:|"]
    for row in document["rows"]:
        # files of the first format have one row for each shape, of training only
        name = row.get("contender", "ours")
        training = row["training"]["ratio"] if row.get("training") else row.get("ratio_to_layer")
        inference = row["inference"]["ratio"] if row.get("inference") else None
        if training is None:
            continue
        shape = f"{row['batch']} x {row['length']}, {row['d_model']}"
        memory = "" if row["peak_mb"] is None else f"{row['peak_mb']:.0f} MB"
        second = "" if inference is None else f"{inference:.1f}"
        lines.append(f"| {shape} | {_MODULES.get(name, name)} | {training:.1f} | {second} | {memory} |")
    return "\n".join([*lines, "", f"{machine['cpu']}, {machine['threads']} threads, commit {machine['commit']}."])
