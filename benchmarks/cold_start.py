"""CPU seconds until a new process has its first answer, above the time to import TensorFlow and Keras.

    python benchmarks/cold_start.py [PRESET...] [--photos FILE] [--recordings FILE] [--texts FILE]
                                    [--repeats 3] [--threads 1] [--json]

By default one preset for a photo, one for a recording and one for a text, with made-up inputs. Each answer comes from a
process of its own. CPU time of all threads is counted, because wall time says little on a busy machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from presets import VERBS, add_input_arguments, read_inputs, set_threads

DEFAULT_PRESETS = ("show_attend_tell_coco", "moonshine_tiny_english", "pointer_generator_headlines")
_ANSWER = """
import json, sys, time
times = [time.process_time()]
import tensorflow, keras
times.append(time.process_time())
import presets
application = presets.load(sys.argv[1])
times.append(time.process_time())
item = open(f"{sys.argv[2]}/{presets.VERBS[presets.find_verb(application)]}", "rb").read()
for _ in range(2):
    presets.verb_of(application)(item)
    times.append(time.process_time())
print(json.dumps(times))
"""
# The stages between the times that the process above takes.
STAGES = ("import TensorFlow and Keras", "import and load", "first answer", "second answer")
ABOVE_IMPORTS = "above the imports"
COLUMNS = (*STAGES[:3], ABOVE_IMPORTS, STAGES[3])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=DEFAULT_PRESETS, metavar="PRESET", help="names or folders")
    add_input_arguments(parser)
    parser.add_argument("--repeats", type=int, default=3, help="processes for each preset; the medians count")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    set_threads(options.threads)
    # The package switches it on as well, but only if it is imported before TensorFlow.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    with tempfile.TemporaryDirectory() as folder:
        for kind in set(VERBS.values()):
            (Path(folder) / kind).write_bytes(read_inputs(kind, getattr(options, kind))[0])
        figures = measure(options.presets, folder, options.repeats)
    if options.json:
        print(json.dumps(figures))
    else:
        print_table(figures)


def measure(presets: list[str], inputs: str, repeats: int) -> dict[str, dict[str, float]]:
    """Return the median CPU seconds of each stage, by preset. The presets take turns."""
    runs: dict[str, list[dict[str, float]]] = {preset: [] for preset in presets}
    for _ in range(repeats):
        for preset in presets:
            runs[preset].append(answer_in_new_process(preset, inputs))
    return {
        preset: {column: statistics.median(run[column] for run in some) for column in COLUMNS}
        for preset, some in runs.items()
    }


def answer_in_new_process(preset: str, inputs: str) -> dict[str, float]:
    """Return the CPU seconds of each stage of one process; `inputs` holds a file for each kind of input."""
    preset = str(Path(preset).resolve()) if Path(preset).is_dir() else preset
    command = [sys.executable, "-c", _ANSWER, preset, inputs]
    done = subprocess.run(command, cwd=Path(__file__).parent, check=True, stdout=subprocess.PIPE, text=True)
    return split_into_stages(json.loads(done.stdout.splitlines()[-1]))


def split_into_stages(times: list[float]) -> dict[str, float]:
    seconds = {stage: end - start for stage, (start, end) in zip(STAGES, pairwise(times), strict=True)}
    return {**seconds, ABOVE_IMPORTS: seconds["import and load"] + seconds["first answer"]}


def print_table(figures: dict[str, dict[str, float]]) -> None:
    width = max(map(len, figures))
    print(f"{'CPU seconds':{width}}", *COLUMNS, sep="  ")
    for preset, seconds in figures.items():
        print(f"{preset:{width}}", *(f"{seconds[column]:{len(column)}.2f}" for column in COLUMNS), sep="  ")


if __name__ == "__main__":
    main()
