"""Kill training runs at random times, and check that they compute the same as an unbroken run, bit for bit.

    python tools/kill.py --kills 20 --seed 0

A small run on embedded data is trained once without a break. Then the same run is started in another folder, killed
with SIGKILL at a random time, resumed, killed again, and so on. When it is finished, its losses and weights are
compared with those of the unbroken run, and the next run begins, until there were as many kills as asked for. The
script prints a line for each kill, and exits with 1 at the first difference. To test a busy machine, run
``yes > /dev/null`` at the same time.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors.torch import load_file

from algebranets.lab.train import RunFolder

#: Enough steps for training to take longer than starting, so that most kills happen during training.
STEPS = 600
#: A run with batch norm, pruning masks and several evaluations, all of which must survive a kill.
RECIPE = ["digits", "--algebra", "M2R", "--width", "0.25", "--set", f"steps={STEPS}", "--set", "evaluations=5"]
RECIPE += ["--set", "data.batch_size=20", "--set", "pruning.sparsity=0.8", "--set", "pruning.every=5"]
HARDWARE = ["--accelerator", "cpu", "--log-steps", "1", "--checkpoint-steps", "5", "--threads", "2"]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how many times to kill (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random times (default: 0)")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begun = time.monotonic()
        end(start(folder / "unbroken"))
        seconds = time.monotonic() - begun
        print(f"unbroken: {STEPS} steps in {seconds:.1f} s", flush=True)
        kills = runs = 0
        while kills < options.kills:
            run = folder / f"run{runs}"
            while not is_finished(run):
                process, wait = start(run), rng.uniform(0, seconds)
                if kills == options.kills:
                    end(process)
                    break
                try:
                    end(process, wait)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    kills += 1
                    print(f"kill {kills}: after {wait:.1f} s, at step {last_step(run)} of run {runs}", flush=True)
            difference = compare(folder / "unbroken", run)
            if difference:
                print(f"run {runs} differs from the unbroken one: {difference}")
                return 1
            print(f"run {runs}: equal to the unbroken one, {STEPS} losses and all weights", flush=True)
            runs += 1
    print(f"{kills} kills, {runs} runs, bit-exact")
    return 0


def start(run: Path) -> subprocess.Popen[bytes]:
    """Start the run in this folder, or resume it. The command is the same."""
    command = [sys.executable, "-m", "algebranets", "train", *RECIPE, *HARDWARE, "--out", str(run)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)


def end(process: subprocess.Popen[bytes], timeout: float | None = None) -> None:
    """Wait for a process. If it fails, exit with its output."""
    output, _ = process.communicate(timeout=timeout)
    if process.returncode:
        sys.exit(f"a run ended with exit code {process.returncode}:\n{output.decode()}")


def is_finished(run: Path) -> bool:
    """Whether the run's result and weights exist."""
    return RunFolder(run).finished() is not None


def last_step(run: Path) -> int:
    """The last step whose metrics were written."""
    return max((int(row["step"]) for row in RunFolder(run).rows()), default=0)


def compare(one: Path, other: Path) -> str:
    """Describe how two finished runs differ. An empty string if they do not."""
    rows = [[_computed(row) for row in RunFolder(run).rows()] for run in (one, other)]
    if rows[0] != rows[1]:
        different = [pair for pair in zip(*rows, strict=False) if pair[0] != pair[1]]
        return f"metrics {different[:1] or [len(r) for r in rows]}"
    weights = [load_file(run / "weights.safetensors") for run in (one, other)]
    if weights[0].keys() != weights[1].keys():
        return f"names of weights {weights[0].keys() ^ weights[1].keys()}"
    return ", ".join(name for name, value in weights[0].items() if not value.equal(weights[1][name]))


def _computed(row: dict[str, float]) -> dict[str, float]:
    """The values of a row that do not depend on the clock."""
    return {name: value for name, value in row.items() if "second" not in name}


if __name__ == "__main__":
    sys.exit(main())
