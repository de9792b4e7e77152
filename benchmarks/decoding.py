"""Tokens a second of beam search with the captioner's and the summarizer's model, next to PyTorch and plain Keras.

A run encodes a batch of 32 sources and writes 20 tokens for each, of which none ends the sequence; what counts is the
tokens of the best hypotheses. PyTorch's search is written by hand, vectorised over items and beams; Keras' steps a
cell from a loop in Python. All contenders have the same weights and threads, each runs in a process of its own, and
they take turns; no time is taken before their best hypotheses and scores agree.

    python benchmarks/decoding.py [--beams 1 5 10] [--threads 1] [--repeats 7] [--shapes NAME ...] [--quick] [--json]
"""

import dataclasses
import os

from contest import OURS, PYTORCH, Entry, describe_machine, hold_contest
from report import choose_workloads, make_parser, print_report, require_torch, show_progress
from rules import MAX_LENGTH
from workers import set_threads
from workloads import Workload, make_batch

BATCH = 32
SHAPES = ("captioner", "summarizer")


def main() -> None:
    options = parse_options()
    require_torch()
    set_threads(options.threads)
    report = {"benchmark": "Decoding", "threads": options.threads, "machine": describe_machine(), "contests": {}}
    for name, workload in choose_workloads(options).items():
        workload = dataclasses.replace(workload, batch=workload.batch if options.quick else BATCH, targets=1)
        for beam_size in options.beams:
            title = f"{name}, beam {beam_size}"
            entries = make_entries(workload, beam_size, with_compiled=not options.quick)
            contenders = hold_contest(title, entries, options.repeats, show_progress)
            for figures in contenders.values():
                if "error" not in figures:
                    figures["per_second"] = workload.batch * MAX_LENGTH / figures["median_seconds"]
            sizes = {**dataclasses.asdict(workload), "beam_size": beam_size, "max_length": MAX_LENGTH}
            report["contests"][title] = {"workload": sizes, "contenders": contenders}
    report["load_after"] = os.getloadavg()[0]
    print_report(report, "tokens", options.json)


def parse_options():
    parser = make_parser(__doc__, SHAPES)
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 5, 10], help="beam sizes (default: 1 5 10)")
    return parser.parse_args()


def make_entries(workload: Workload, beam_size: int, with_compiled: bool) -> dict[str, Entry]:
    arguments = (workload, make_batch(workload), beam_size)
    entries = {
        OURS: Entry("our_contenders.OurDecoding", arguments),
        PYTORCH: Entry("torch_contenders.TorchDecoding", arguments),
        "PyTorch, torch.compile": Entry("torch_contenders.TorchDecoding", arguments, compiled=True),
        "attention_apps, XLA": Entry("our_contenders.OurDecoding", arguments, compiled=True),
        "Keras, cell in a loop": Entry("keras_contenders.KerasDecoding", arguments),
    }
    return {name: entry for name, entry in entries.items() if with_compiled or not entry.compiled}


if __name__ == "__main__":
    main()
