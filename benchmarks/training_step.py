"""Training steps a second of the three applications' models, next to the same models in PyTorch and plain Keras.

A step is forward, loss, backward, clipping and Adam's update, on one batch without padding and without dropout. All
contenders have the same weights and threads, each runs in a process of its own, and they take turns; no time is taken
before their logits, gradients and first losses agree.

    python benchmarks/training_step.py [--threads 1] [--repeats 7] [--shapes captioner ...] [--quick] [--json]
"""

import dataclasses
import os

from contest import OURS, PYTORCH, Entry, describe_machine, hold_contest
from report import choose_workloads, make_parser, print_report, require_torch, show_progress
from workers import set_threads
from workloads import WORKLOADS, Workload, make_batch


def main() -> None:
    options = make_parser(__doc__, WORKLOADS).parse_args()
    require_torch()
    set_threads(options.threads)
    report = {"benchmark": "Training step", "threads": options.threads, "machine": describe_machine(), "contests": {}}
    for name, workload in choose_workloads(options).items():
        entries = make_entries(workload, with_compiled=not options.quick)
        contenders = hold_contest(name, entries, options.repeats, show_progress)
        for figures in contenders.values():
            if "error" not in figures:
                figures["per_second"] = 1 / figures["median_seconds"]
        report["contests"][name] = {"workload": dataclasses.asdict(workload), "contenders": contenders}
    report["load_after"] = os.getloadavg()[0]
    print_report(report, "steps", options.json)


def make_entries(workload: Workload, with_compiled: bool) -> dict[str, Entry]:
    arguments = (workload, make_batch(workload))
    entries = {
        OURS: Entry("our_contenders.OurTraining", arguments),
        PYTORCH: Entry("torch_contenders.TorchTraining", arguments),
        "PyTorch, torch.compile": Entry("torch_contenders.TorchTraining", arguments, compiled=True),
        "Keras, RNN cell": Entry("keras_contenders.KerasTraining", arguments),
    }
    return {name: entry for name, entry in entries.items() if with_compiled or not entry.compiled}


if __name__ == "__main__":
    main()
