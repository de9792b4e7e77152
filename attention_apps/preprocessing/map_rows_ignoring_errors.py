"""Map a function over the rows of a batch in graph code, where it may fail on some rows."""

from collections.abc import Callable

import tensorflow as tf


def map_rows_ignoring_errors(
    function: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], rows: tf.Tensor, otherwise: tuple[tf.Tensor, ...]
) -> tuple[tf.Tensor, ...]:
    """Apply a function to each row and stack the results. A row that raises an error does not fail the others.

    Args:
        function: maps a row to tensors.
        rows: a tensor with the batch axis first.
        otherwise: the result for a row that failed.

    Returns:
        Tensors with the batch axis first. Results of different sizes are padded with zeros to the largest.
    """
    count = tf.shape(rows, tf.int64)[0]
    numbered = tf.data.Dataset.from_tensor_slices((tf.range(count), rows))
    results = numbered.map(
        lambda number, row: (number, *function(row)), num_parallel_calls=tf.data.AUTOTUNE
    ).ignore_errors()
    stacked = results.concatenate(tf.data.Dataset.from_tensors((count, *otherwise))).padded_batch(count + 1)
    numbers, *columns = stacked.get_single_element()
    last = tf.size(numbers, tf.int64) - 1  # the position of `otherwise`, used for every failed row
    place_of = tf.tensor_scatter_nd_update(tf.fill([count + 1], last), numbers[:, tf.newaxis], tf.range(last + 1))
    return tuple(tf.gather(column, place_of[:count]) for column in columns)
