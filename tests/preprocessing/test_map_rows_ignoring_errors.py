"""A function on each row, some of which fail."""

import numpy as np
import tensorflow as tf

from attention_apps.preprocessing.map_rows_ignoring_errors import map_rows_ignoring_errors


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
def numbers(rows):
    def read(row):
        number = tf.strings.to_number(row)
        return tf.range(number), number

    return map_rows_ignoring_errors(read, rows, (tf.zeros([1]), tf.constant(-1.0)))


def test_rows_stay_in_order_and_are_padded_and_those_that_fail_are_replaced():
    ranges, values = numbers(["3", "none", "1", "", "4"])
    assert values.numpy().tolist() == [3, -1, 1, -1, 4]
    np.testing.assert_array_equal(ranges, [[0, 1, 2, 0], [0] * 4, [0] * 4, [0] * 4, [0, 1, 2, 3]])


def test_all_may_fail_and_none_may_be_there():
    assert numbers(["x", "y"])[1].numpy().tolist() == [-1, -1]
    assert numbers(tf.zeros([0], tf.string))[0].shape[0] == 0
