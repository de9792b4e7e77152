"""Forward and backward passes of the attention layers next to Keras' own and PyTorch's.

All contenders have the same weights and threads and take turns; no time is taken before their contexts and
gradients agree. Then the peak memory of every layer with a hidden layer over a long source, each in a process of its
own, and of Keras' additive attention.

    python benchmarks/attention_layers.py [--threads 1] [--repeats 15] [--json]
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

TOLERANCE = 1e-4
LAYERS = (
    "AdditiveAttention",
    "LuongAttention",
    "LocationSensitiveAttention",
    "CoverageAttention",
    "MonotonicAttention",
    "HardAttention",
    "Keras",
)
MEMORY_LIMIT = 0.5e9

# kind -> (batch, target, source, dim)
CASES = {
    "additive, one step": ("additive", (160, 1, 64, 512)),
    "additive, a sentence": ("additive", (160, 20, 64, 512)),
    "additive, a recording": ("additive", (4, 32, 1500, 512)),
    "scaled dot product": ("scaled_dot_product", (32, 64, 256, 512)),
    "multi-head": ("multi_head", (16, 128, 128, 512)),
}


def main() -> int:
    options = parse_options()
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    os.environ["TF_NUM_INTEROP_THREADS"] = "1"
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is compared with, and missing here: pip install torch==2.13.0", file=sys.stderr)
        return 1
    speed = measure_speed(options)
    memory = {name: measure_memory(name) for name in LAYERS}
    if options.json:
        print(json.dumps({"threads": options.threads, "speed": speed, "memory_bytes": memory}, indent=2))
    else:
        print_tables(speed, memory, options.threads)
    return 0 if all(fits(peak) for name, peak in memory.items() if name != "Keras") else 1


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="threads of each contender (default: 1)")
    parser.add_argument("--repeats", type=int, default=15, help="runs of each that count (default: 15)")
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    return parser.parse_args()


def measure_speed(options: argparse.Namespace) -> dict[str, dict]:
    import attention_contenders
    import torch
    from timing import interleave

    torch.set_num_threads(options.threads)
    results = {}
    for case, (kind, sizes) in CASES.items():
        contenders = getattr(attention_contenders, kind)(make_arrays(kind, *sizes))
        difference = check_parity(case, contenders)
        timings = interleave(contenders, options.repeats)
        results[case] = {
            "sizes": sizes,
            "largest_difference": difference,
            "timings": {name: timing.to_dict() for name, timing in timings.items()},
        }
    return results


def make_arrays(kind: str, batch: int, target: int, source: int, dim: int) -> dict:
    """Query, value, the weights in the order in which the contenders take them, and the gradient that comes in."""
    import numpy as np

    shapes = {"query": (batch, target, dim), "value": (batch, source, dim)}
    if kind == "additive":
        shapes |= {"query_kernel": (dim, dim), "key_kernel": (dim, dim), "score": (dim,)}
    if kind == "multi_head":
        shapes |= {f"{name}_kernel": (dim, dim) for name in ("query", "key", "value", "output")}
    generator = np.random.default_rng(0)
    scales = {name: 1 if name in ("query", "value") else dim**-0.5 for name in shapes}
    arrays = {name: scales[name] * generator.standard_normal(shape, "float32") for name, shape in shapes.items()}
    arrays = {name: array.astype("float32") for name, array in arrays.items()}
    return {**arrays, "upstream": generator.standard_normal((batch, target, dim), "float32")}


def check_parity(case: str, contenders: dict) -> float:
    """The largest difference between contexts or gradients, relative to the largest entry where that exceeds 1."""
    import numpy as np

    outputs = {name: [np.asarray(x) for x in run()] for name, run in contenders.items()}
    reference = outputs.pop("attention_apps")
    largest = 0.0
    for name, others in outputs.items():
        for ours, theirs in zip(reference, others, strict=True):
            difference = np.abs(ours - theirs.reshape(ours.shape)).max() / max(1.0, np.abs(ours).max())
            if not difference < TOLERANCE:
                raise SystemExit(f"{case}: {name} differs by {difference:.1e}, more than {TOLERANCE}")
            largest = max(largest, float(difference))
    return largest


def measure_memory(layer: str) -> int | None:
    """Peak bytes in a process of its own, or `None` where there is too little memory, or no way to measure it."""
    script = Path(__file__).with_name("attention_memory.py")
    child = subprocess.run([sys.executable, script, layer], capture_output=True, text=True, check=False)
    if child.returncode != 0:
        print(f"{layer}: {child.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return json.loads(child.stdout.splitlines()[-1])["bytes"]


def fits(memory: int | None) -> bool:
    return memory is not None and memory < MEMORY_LIMIT


def print_tables(speed: dict, memory: dict, threads: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Forward and backward, {threads} thread{'s' if threads > 1 else ''}")
    for column in ("batch, target, source, dim", "", "median ms", "spread ms", "CPU ms", "of ours"):
        table.add_column(column, justify="left" if column in ("", "batch, target, source, dim") else "right")
    for case, result in speed.items():
        ours = result["timings"]["attention_apps"]["median_seconds"]
        table.add_section()
        table.add_row(f"[bold]{case}[/] {result['sizes']}", f"parity {result['largest_difference']:.0e}")
        for name, timing in result["timings"].items():
            times = [timing[key] for key in ("median_seconds", "spread_seconds", "cpu_seconds_per_run")]
            table.add_row("", name, *(f"{1000 * t:.1f}" for t in times), f"{times[0] / ours:.2f}")
    peaks = Table(title="Peak memory: batch 32, target 32, source 1500, dim and units 512")
    for column in ("", "GB above inputs and gradients", f"below {MEMORY_LIMIT / 1e9} GB"):
        peaks.add_column(column)
    for name, peak in memory.items():
        peaks.add_row(name, "did not finish" if peak is None else f"{peak / 1e9:.2f}", "yes" if fits(peak) else "no")
    console = Console()
    console.print(table)
    console.print(peaks)


if __name__ == "__main__":
    raise SystemExit(main())
