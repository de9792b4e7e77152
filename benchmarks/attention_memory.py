"""Peak memory of one forward and backward pass of an attention layer; prints it in bytes. Linux only.

What counts is what the process has at its peak above what it had before, the inputs and the returned gradients.

    python benchmarks/attention_memory.py AdditiveAttention|CoverageAttention|...|Keras
"""

import argparse
import json

import attention_apps.layers  # before TensorFlow, which reads its settings from the environment when imported

# isort: split
import keras
import tensorflow as tf

BATCH, TARGET, SOURCE, DIM = 32, 32, 1500, 512
KERAS_NEEDS = 12e9


LAYERS = {
    "AdditiveAttention": lambda layers: layers.AdditiveAttention(DIM),
    "LuongAttention": lambda layers: layers.LuongAttention(score="concat", units=DIM),
    "LocationSensitiveAttention": lambda layers: layers.LocationSensitiveAttention(DIM),
    "CoverageAttention": lambda layers: layers.CoverageAttention(DIM),
    "MonotonicAttention": lambda layers: layers.MonotonicAttention(DIM),
    "HardAttention": lambda layers: layers.HardAttention(layers.AdditiveAttention(DIM)),
    "Keras": lambda layers: keras.layers.AdditiveAttention(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layer", choices=LAYERS, metavar="LAYER", help=", ".join(LAYERS))
    name = parser.parse_args().layer
    if name == "Keras" and memory("MemAvailable", "/proc/meminfo") < KERAS_NEEDS:
        raise SystemExit(f"Keras' layer needs {KERAS_NEEDS / 1e9:.0f} GB of free memory")
    print(json.dumps({"bytes": measure(name)}))


def measure(name: str) -> int:
    run = forward_and_backward(name)
    run(*inputs(1, 2, 3))  # what TensorFlow loads at first use is not the layer's
    run.get_concrete_function(*(tf.TensorSpec((BATCH, length, DIM)) for length in (TARGET, SOURCE)))
    before = memory("VmRSS")
    tensors = inputs(BATCH, TARGET, SOURCE)
    gradients = run(*tensors)
    counted = sum(tensor.numpy().nbytes for tensor in [*tensors, *gradients])
    return memory("VmHWM") - before - counted


def forward_and_backward(name: str) -> tf.types.experimental.PolymorphicFunction:
    layer = LAYERS[name](attention_apps.layers)

    @tf.function
    def run(query, value):
        with tf.GradientTape() as tape:
            tape.watch([query, value])
            context = layer([query, value]) if name == "Keras" else layer(query, value)[0]
        variables = [variable.value for variable in layer.trainable_variables]
        return tape.gradient(context, [query, value, *variables], unconnected_gradients="zero")

    return run


def inputs(batch: int, target: int, source: int) -> list[tf.Tensor]:
    return [tf.random.normal((batch, length, DIM)) for length in (target, source)]


def memory(field: str, path: str = "/proc/self/status") -> int:
    """`VmRSS`, what the process has, or `VmHWM`, the most it ever had."""
    with open(path, encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


if __name__ == "__main__":
    main()
