"""Tables of the result files, for the pages that show them."""

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import polars as pl

from reproduction import experiments
from reproduction.document import sheet_to_markdown
from reproduction.results import Results
from reproduction.store import Store

RESULTS = Path(__file__).parents[1] / "reproduction" / "results"
BENCHMARKS = Path(__file__).parents[1] / "benchmarks" / "results"
_MODULES = {
    "ours": "`ContinuousAttention`",
    "headwise": "with a field for each head",
    "listing": "in PyTorch, without the kernel",
    "compiled": "that, under `torch.compile`",
}


def accuracy() -> str:
    """Table of the accuracy benchmark: means over seeds, with their number and the commits of the runs."""
    rows = json.loads((BENCHMARKS / "accuracy.json").read_text())
    cases: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        cases.setdefault((row["case"], row["protocol"]), []).append(row)
    lines = ["| case | protocol | result | further metrics | seeds | commit |", "|---|---|---|---|---:|---:|"]
    for (case, protocol), runs in sorted(cases.items()):
        metrics = [run["metrics"] for run in runs]
        commits = "<br>".join(dict.fromkeys(run["machine"]["commit"][:7] for run in runs))
        names = [name for name in metrics[0] if name != "seconds"]
        # the metric that the case is judged by is the first, but for risks
        main = next((name for name in names if name == "auroc"), names[0])
        values = {name: _spread([one[name] for one in metrics]).replace(" ", "&nbsp;") for name in names}
        said = {name: f"{name.replace('_', ' ')} {value}" for name, value in values.items()}
        further = "<br>".join(said[name] for name in names if name != main)
        lines.append(f"| {case} | {protocol} | {said[main]} | {further} | {len(metrics)} | {commits} |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{mean(values):.3g}" + (f" ± {stdev(values):.1g}" if len(values) > 1 else "")


def speed() -> str:
    """Table of the cost of continuous attention beside PyTorch's transformer layer."""
    document = json.loads((BENCHMARKS / "attention.json").read_text())
    machine = document["machine"]
    faster = "faster than the paper's algorithm, in PyTorch / its fields compiled"
    lines = [f"| batch x length, width | module | training | inference | peak memory | {faster} |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    for row in document["rows"]:
        name, training = row["contender"], row["training"]["ratio"]
        inference = row["inference"]["ratio"] if row["inference"] else None
        shape = f"{row['batch']} x {row['length']}, {row['d_model']}"
        memory = "" if row["peak_mb"] is None else f"{row['peak_mb']:.0f} MB"
        second = "" if inference is None else f"{inference:.1f}"
        times = [row["speedup_over_pairwise"], row["speedup_over_compiled_pairwise"]]
        speedup = "" if None in times else " / ".join(f"{x:.0f} times" for x in times)
        lines.append(f"| {shape} | {_MODULES.get(name, name)} | {training:.1f} | {second} | {memory} | {speedup} |")
    return "\n".join([*lines, "", f"{machine['cpu']}, {machine['threads']} threads, commit {machine['commit']}."])


def serving() -> str:
    """Table of the server's throughput and latency, beside calls of the estimator itself."""
    document = json.loads((BENCHMARKS / "serving.json").read_text())
    machine = document["machine"]
    measured = {f"estimator, {name}": one for name, one in document["direct"].items()}
    measured |= {f"server, {count} client(s)": one for count, one in document["clients"].items()}
    lines = ["| | series per second | median | 99 % | errors |", "|---|---:|---:|---:|---:|"]
    for name, one in measured.items():
        times = f"{one['p50_ms']:.1f} ms | {one['p99_ms']:.1f} ms"
        lines.append(f"| {name} | {one['series_per_second']:.0f} | {times} | {one['errors']} |")
    place = f"{machine['cpu']}, {machine['threads']} thread(s), commit {machine['commit']}"
    about = f"{document['seconds']:.0f} seconds for each number of clients"
    samples = [one for one in document["memory_mb"].values() if isinstance(one, list) and one]
    if samples:
        ends = "; ".join(f"{one[0]:.0f} MB at the start, {max(one):.0f} MB at most" for one in samples)
        about += f". Memory of the server: {ends}"
    return "\n".join([*lines, "", f"{about}. {place}."])


def backbones() -> str:
    """The best four backbones of each experiment and ContiFormer, by means over the cells that all of them have."""
    uea = (pl.col("setting") == "drop30", "accuracy", "UEA archive, 30 % of the points dropped: accuracy")
    spirals, stack = pl.col("setting") == "alpha0.02", pl.col("data") == "StackOverflow"
    cases = [
        ("the class of a series", "uea", *uea),
        ("values between observations", "spirals", spirals, "interpolation_rmse", "spirals: RMSE"),
        ("values beyond the last observation", "spirals", spirals, "extrapolation_rmse", "spirals: RMSE"),
        ("numbers from noisy pictures", "pendulum", pl.lit(True), "mse", "pendulum: MSE"),
        ("a forecast on a regular grid", "forecasting", pl.lit(True), "mse", "12 cases, as published: MSE"),
        ("the next event", "events", stack, "log_likelihood", "StackOverflow: log-likelihood per event"),
    ]
    lines = ["| you want | measured on | best first |", "|---|---|---|"]
    for wanted, experiment, where, metric, measured in cases:
        ranked = _ranking(experiment, where, metric)
        shown = [one for n, one in enumerate(ranked) if n < 4 or one[0] == "contiformer"]
        names = ", ".join(f"`{name}` {value:.4g}" for name, value in shown)
        lines.append(f"| {wanted} | {measured} | {names} |")
    return "\n".join(lines)


def _ranking(experiment: str, where: pl.Expr, metric: str) -> list[tuple[str, float]]:
    """Models and their mean over the cases that most of them have been run on, the best first."""
    cells = pl.read_csv(RESULTS / f"{experiment}-honest.csv", infer_schema_length=None)
    cells = cells.filter(pl.col("stale").is_null(), where)
    by = cells.group_by("model", "data", "setting").agg(pl.col(metric).mean())
    count = by.group_by("data", "setting").len()
    common = count.filter(pl.col("len") >= count["len"].max() - 2)
    means = by.join(common, on=["data", "setting"]).group_by("model").agg(pl.col(metric).mean(), pl.len())
    higher = metric in ("accuracy", "log_likelihood")
    whole = means.filter(pl.col("len") == len(common)).sort(metric, descending=higher)
    return list(whole.select("model", metric).iter_rows())


def board(name: str) -> str:
    """Tables of a board: published figures, the practitioner's line and our cells so far."""
    one = experiments.get(f"board-{name}")
    results = Results.read(one, "honest", Store(RESULTS))
    if not results.rows:
        return f"Not run yet: `python -m reproduction boards {name}` does."
    sheets = one.sheets(results) if one.sheets is not None else []
    done = f"Run so far: {len(results.rows)} of {len(results.cells)} cells."
    return "\n\n".join([*(sheet_to_markdown(sheet) for sheet in sheets), f"{done} {one.note}"])
