import numpy as np
import pytest
from keras import ops

from attention_apps.layers.block_convolution import convolve, unroll_filters
from tests.layers.contract import assert_close


@pytest.mark.parametrize("width", [1, 4, 5, 40])
@pytest.mark.parametrize("length", [1, 31, 32, 70])
def test_it_is_a_convolution_with_zeros_around_the_signal(width, length):
    generator = np.random.default_rng(0)
    signal, filters = generator.normal(size=(2, length)), generator.normal(size=(width, 3))
    padded = np.pad(signal, ((0, 0), ((width - 1) // 2, width // 2)))
    stretches = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1)  # (B, length, width)
    unrolled = unroll_filters(ops.convert_to_tensor(filters, "float32"))
    assert_close(convolve(ops.convert_to_tensor(signal, "float32"), unrolled), stretches @ filters)
