"""Training steps a second of the three applications' models, next to the same models in PyTorch and plain Keras.

A step is forward, loss, backward, clipping and Adam's update, on one batch without padding and without dropout. All
contenders have the same weights and threads, each runs in a process of its own, and they take turns; no time is taken
before their logits, gradients and first losses agree.

    python benchmarks/training_step.py [--shapes captioner,recognizer,summarizer] [--threads 1] [--repeats 7] [--quick]
                                       [--without-torch] [--without-compile] [--json]
"""

import dataclasses

from contest import OURS, PYTORCH, Contest, Entry
from report import make_parser, run_benchmark
from workloads import Workload, choose_workloads, make_batch


def main() -> None:
    options = make_parser(__doc__).parse_args()
    workloads = choose_workloads(options.shapes, options.quick)
    run_benchmark("Training step", "steps", {name: make_contest(each) for name, each in workloads.items()}, options)


def make_contest(workload: Workload) -> Contest:
    arguments = (workload, make_batch(workload))
    entries = {
        OURS: Entry("our_contenders.OurTraining", arguments),
        PYTORCH: Entry("torch_contenders.TorchTraining", arguments),
        "PyTorch, torch.compile": Entry("torch_contenders.TorchTraining", arguments, compiled=True),
        "Keras, RNN cell": Entry("keras_contenders.KerasTraining", arguments),
    }
    return Contest(entries, units_per_run=1, sizes=dataclasses.asdict(workload))


if __name__ == "__main__":
    main()
