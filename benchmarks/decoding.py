"""Tokens a second of beam search with the three applications' models, next to PyTorch and plain Keras.

A run encodes a batch of 32 sources and writes 20 tokens for each, of which none ends the sequence; what counts is the
tokens of the best hypotheses. PyTorch's search is written by hand, vectorized over items and beams; Keras' steps a
cell from a loop in Python. All contenders have the same weights and threads, each runs in a process of its own, and
they take turns; no time is taken before their best hypotheses and scores agree.

    python benchmarks/decoding.py [--beams 1,5,10] [--shapes captioner,recognizer,summarizer] [--threads 1]
                                  [--repeats 7] [--quick] [--without-torch] [--without-compile] [--json]
"""

import argparse
import dataclasses

from contest import OURS, PYTORCH, Contest, Entry
from report import make_parser, run_benchmark
from workloads import MAX_LENGTH, Workload, choose_workloads, make_batch

BATCH = 32


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--beams", type=beam_sizes, default="1,5,10", help="beam sizes (default: 1,5,10)")
    options = parser.parse_args()
    contests = {}
    for name, workload in choose_workloads(options.shapes, options.quick).items():
        workload = dataclasses.replace(workload, batch=workload.batch if options.quick else BATCH, targets=1)
        for beam_size in options.beams:
            contests[f"{name}, beam {beam_size}"] = make_contest(workload, beam_size)
    run_benchmark("Decoding", "tokens", contests, options)


def beam_sizes(text: str) -> list[int]:
    sizes = [int(size) for size in text.split(",")]
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"beam sizes must be at least 1, received: {text}")
    return sizes


def make_contest(workload: Workload, beam_size: int) -> Contest:
    arguments = (workload, make_batch(workload), beam_size)
    entries = {
        OURS: Entry("our_contenders.OurDecoding", arguments),
        PYTORCH: Entry("torch_contenders.TorchDecoding", arguments),
        "PyTorch, torch.compile": Entry("torch_contenders.TorchDecoding", arguments, compiled=True),
        "Keras, cell in a loop": Entry("keras_contenders.KerasDecoding", arguments),
    }
    sizes = {**dataclasses.asdict(workload), "beam_size": beam_size, "max_length": MAX_LENGTH}
    return Contest(entries, units_per_run=workload.batch * MAX_LENGTH, sizes=sizes)


if __name__ == "__main__":
    main()
