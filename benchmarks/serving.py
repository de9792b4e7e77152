"""How an exported model answers: the first time after it was loaded, steadily, and without growing.

Exports a preset and loads the export in a new process, as a server does, for its first answer. Then loads it in this
process and calls it next to the live application with the same inputs, one at a time, taking turns; then on and on with
batches of mixed sizes, while the memory of the process is watched.

    python benchmarks/serving.py PRESET INPUT... [--calls 2000] [--repeats 50] [--threads 1] [--json]

Inputs are files: photos of a captioner, recordings of a recognizer (WAV), texts of a summarizer.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_FIRST_ANSWER = """
import json, sys
from timing import time_once
from attention_apps.serving import LoadedModel
export, name, path = sys.argv[1:]
with open(path, "rb") as file:
    inputs = {name: [file.read()]}
loaded = []
loading = time_once(lambda: loaded.append(LoadedModel(export)))
print(json.dumps([*loading, *time_once(lambda: loaded[0].predict(inputs))]))
"""
INPUTS = {
    "image_captioning": ("image_bytes", "caption"),
    "speech_recognition": ("audio_bytes", "transcribe"),
    "text_summarization": ("text", "summarize"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", help="name of a preset, or the folder of a trained application")
    parser.add_argument("inputs", nargs="+", type=Path, help="files")
    parser.add_argument("--calls", type=int, default=2000, help="of mixed sizes, while memory is watched")
    parser.add_argument("--repeats", type=int, default=50, help="timed calls of each, one input at a time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    figures = measure(options)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:10.4g}")


def measure(options: argparse.Namespace) -> dict[str, float]:
    from timing import interleave

    from attention_apps.cli.tasks import load_application
    from attention_apps.serving import LoadedModel

    application = load_application(options.preset)
    name, verb = INPUTS[application.task]
    items = [path.read_bytes() for path in options.inputs]
    with tempfile.TemporaryDirectory() as folder:
        export = application.export(Path(folder) / "model")
        size = sum(path.stat().st_size for path in export.rglob("*") if path.is_file())
        loading, loading_cpu, first, first_cpu = time_first_answer(export, name, options.inputs[0])
        model = LoadedModel(export)
    check_parity(application, model, items, name, verb)
    live = getattr(application, verb)
    turn = iter(range(10**9))
    timings = interleave(
        {
            "live": lambda: live(items[next(turn) // 2 % len(items)]),
            "export": lambda: model.predict({name: [items[next(turn) // 2 % len(items)]]}),
        },
        options.repeats,
        warmup=3,
    )
    return {
        "export megabytes": size / 1e6,
        "load seconds": loading,
        "load CPU seconds": loading_cpu,
        "first answer seconds": first,
        "first answer CPU seconds": first_cpu,
        "live milliseconds": 1e3 * timings["live"].median,
        "export milliseconds": 1e3 * timings["export"].median,
        "export / live": timings["export"].median / timings["live"].median,
        **grow(lambda batch: model.predict({name: batch}), items, options.calls),
    }


def time_first_answer(export: Path, name: str, path: Path) -> list[float]:
    """Seconds and CPU seconds of loading an export in a new process, and of what it is asked first there."""
    command = [sys.executable, "-c", _FIRST_ANSWER, str(export), name, str(path.resolve())]
    done = subprocess.run(command, cwd=Path(__file__).parent, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def check_parity(application, model, items, name, verb) -> None:
    """Ends the program where the export says something else than the application."""
    ours = [result.text for result in getattr(application, verb)(items)]
    theirs = [texts[0].decode() for texts in model.predict({name: items})["text"]]
    if ours != theirs:
        sys.exit(f"The export differs from the application: {theirs} in place of {ours}")


def grow(call, items, calls: int) -> dict[str, float]:
    """Megabytes that the process grows by from the first tenth of the calls to the end, and how the calls slow down."""
    chance, seconds, memory = random.Random(0), [], []
    for _ in range(calls):
        batch = [chance.choice(items) for _ in range(chance.choice((1, 2, 3, 5, 8)))]
        start = time.perf_counter()
        call(batch)
        seconds.append((time.perf_counter() - start) / len(batch))
        memory.append(resident_megabytes())
    tenth = max(calls // 10, 1)
    return {
        "calls": calls,
        "growth megabytes": statistics.mean(memory[-tenth:]) - statistics.mean(memory[tenth : 2 * tenth]),
        "last tenth / first tenth": statistics.median(seconds[-tenth:]) / statistics.median(seconds[:tenth]),
    }


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
