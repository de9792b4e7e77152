"""The examples in docstrings run. What an example takes as given (a query, a mask) is given here."""

import doctest
import importlib
import pkgutil

import keras
import numpy as np
import pytest

import attention_apps
from attention_apps import layers

RNG = np.random.default_rng(0)


def random(*shape):
    return keras.ops.convert_to_tensor(RNG.normal(size=shape).astype("float32"))


GIVEN = {
    "keras": keras,
    "ops": keras.ops,
    "query": random(2, 3, 16),
    "value": random(2, 5, 16),
    "mask": keras.ops.ones((2, 5), "bool"),
    "x": random(2, 5, 16),
    "embedded": random(2, 5, 16),
    "embedded_step": random(2, 1, 16),
    "position": keras.ops.convert_to_tensor([3, 4]),
    "log_likelihood": random(2),
    "table": random(7, 7),
    **{name: getattr(layers, name) for name in layers.__all__},
}


def examples():
    for module in pkgutil.walk_packages(attention_apps.__path__, "attention_apps."):
        if module.name.endswith("__main__") or module.ispkg:
            continue
        found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module.name))
        yield from (example for example in found if example.examples)


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.name)
def test_the_example_of_a_docstring_runs(example):
    example.globs = {**example.globs, **{name: value for name, value in GIVEN.items() if name not in example.globs}}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report = []
    runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)
