"""Kill trainings at random moments, resume them, and compare: ``python -m tests.training.killing 20``."""

import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.training.jobs import finished, same, start
from tests.training.test_resume import CASES


def main(kills, seed=0):
    draw = random.Random(seed)
    cases = [{**given, "task": {"backbone": "contiformer"}} for given in CASES.values()]
    place = Path(tempfile.mkdtemp())
    whole = []
    for number, given in enumerate(cases):
        folder = place / f"whole{number}"
        # the second time the fork server has imported everything
        for _ in range(2):
            shutil.rmtree(folder, ignore_errors=True)
            began = time.perf_counter()
            result = finished(folder, folder / "result", **given)
        whole.append((result, time.perf_counter() - began))
    done = wrong = 0
    while done < kills:
        number = done % len(cases)
        expected, seconds = whole[number]
        folder = place / f"killed{done}"
        moment = draw.uniform(0, seconds)
        process = start(folder, folder / "result", **cases[number])
        time.sleep(moment)
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            rows = (folder / "history.csv").read_text().count("\n") - 1 if (folder / "history.csv").exists() else 0
            equal = same(finished(folder, folder / "result", **cases[number]), expected)
            done, wrong = done + 1, wrong + (not equal)
            print(
                f"{done} {list(CASES)[number]}: {moment:.2f} of {seconds:.2f} s, {rows} rounds; identical: {equal}",
                flush=True,
            )
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(place)
    print(f"{kills} kills, {wrong} results differ")
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
