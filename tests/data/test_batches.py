import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_apps.data.batches import Batches

TOKENS = {"tokens": tf.TensorSpec((None,), tf.int32)}
SPEECH = {
    "source": {"features": tf.TensorSpec((None, 3), tf.float32), "mask": tf.TensorSpec((None,), tf.bool)},
    "tokens": tf.TensorSpec((None,), tf.int32),
}


def speech(index, length):
    """An example in which every number says where it comes from."""
    return {
        "source": {"features": np.full((length, 3), index + 1, np.float16), "mask": np.ones(length, bool)},
        "tokens": np.full(length % 4 + 2, index + 1),
    }


def make(lengths, **options):
    examples = [speech(index, length) for index, length in enumerate(lengths)]
    return Batches(examples, SPEECH, lengths=lengths, **options)


def arrays(dataset):
    return [tf.nest.map_structure(lambda tensor: tensor.numpy(), batch) for batch in dataset]


def assert_equal(first, second):
    assert len(first) == len(second)
    tf.nest.map_structure(np.testing.assert_array_equal, first, second)


plans = st.fixed_dictionaries(
    {
        "lengths": st.lists(st.integers(1, 30), min_size=1, max_size=60),
        "batch_size": st.integers(1, 9),
        "max_batch_length": st.none() | st.integers(1, 100),
        "seed": st.integers(0, 2**32),
        "shuffle": st.booleans(),
        "short_first_epochs": st.integers(0, 2),
    }
)


@settings(max_examples=60, deadline=None)
@given(plans, st.integers(0, 5))
def test_each_example_comes_once_an_epoch_within_the_bounds(options, epoch):
    batches = make(**options)
    rows = [batches.rows(epoch, number) for number in range(batches.num_batches(epoch))]
    assert sorted(np.concatenate(rows)) == list(range(len(options["lengths"])))
    lengths = np.asarray(options["lengths"])
    for row in rows:
        assert 1 <= len(row) <= options["batch_size"]
        if options["max_batch_length"] and len(row) > 1:
            assert len(row) * lengths[row].max() <= options["max_batch_length"]


@settings(max_examples=60, deadline=None)
@given(plans, st.integers(0, 5), st.integers(1, 4))
def test_the_parts_of_all_shards_are_the_batch(options, epoch, num_shards):
    batches = make(**options)
    for number in range(batches.num_batches(epoch)):
        parts = [batches.rows(epoch, number, shard, num_shards) for shard in range(num_shards)]
        assert sorted(np.concatenate(parts)) == sorted(batches.rows(epoch, number))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@settings(max_examples=30, deadline=None)
@given(plans, st.integers(0, 5))
def test_the_order_depends_on_seed_and_epoch_only(options, epoch):
    one, other = make(**options), make(**options)
    for past in range(3):
        other.num_batches(past)
    assert one.num_batches(epoch) == other.num_batches(epoch)
    for number in range(one.num_batches(epoch)):
        np.testing.assert_array_equal(one.rows(epoch, number), other.rows(epoch, number))


def test_seeds_and_epochs_differ():
    def order(seed, epoch):
        batches = make([5] * 50, batch_size=50, seed=seed)
        return tuple(batches.rows(epoch, 0))

    assert len({order(seed, epoch) for seed in range(3) for epoch in range(3)}) == 9


def test_batches_hold_similar_lengths_and_are_mixed_anew_each_epoch():
    lengths = np.random.default_rng(0).integers(10, 200, 400)
    batches = make(lengths, batch_size=10)
    spread = [np.ptp(lengths[batches.rows(0, number)]) for number in range(batches.num_batches(0))]
    assert np.mean(spread) < 30  # 170 when drawn at random
    groups = [{frozenset(batches.rows(epoch, number).tolist()) for number in range(40)} for epoch in (0, 1)]
    assert len(groups[0] & groups[1]) == 0
    firsts = [lengths[batches.rows(0, number)[0]] for number in range(40)]
    assert firsts != sorted(firsts)


def test_the_first_epochs_go_from_short_to_long():
    lengths = np.random.default_rng(0).permutation(60) + 1
    batches = make(lengths, batch_size=7, short_first_epochs=1)
    order = np.concatenate([batches.rows(0, number) for number in range(9)])
    assert list(lengths[order]) == sorted(lengths)
    order = np.concatenate([batches.rows(1, number) for number in range(9)])
    assert list(lengths[order]) != sorted(lengths)


def test_without_shuffling_and_lengths_the_order_is_kept():
    batches = Batches([speech(index, 3) for index in range(5)], SPEECH, batch_size=2, shuffle=False)
    assert [batches.rows(epoch, number).tolist() for epoch in (0, 1) for number in range(3)] == [
        [0, 1],
        [2, 3],
        [4],
    ] * 2


def test_batches_are_padded_to_the_longest_and_keep_every_number():
    lengths = [4, 2, 7]
    batch = arrays(make(lengths, batch_size=3, shuffle=False).batches(0))[0]
    rows = [1, 0, 2]
    assert batch["source"]["features"].shape == (3, 7, 3)
    assert batch["source"]["features"].dtype == np.float32
    np.testing.assert_array_equal(batch["source"]["mask"].sum(axis=1), [2, 4, 7])
    for row, index in enumerate(rows):
        length = lengths[index]
        assert (batch["source"]["features"][row, :length] == index + 1).all()
        assert (batch["source"]["features"][row, length:] == 0).all()
        np.testing.assert_array_equal(batch["tokens"][row].nonzero()[0], range(length % 4 + 2))


def test_an_entry_may_be_a_single_number():
    signature = {"length": tf.TensorSpec((), tf.int32)}
    examples = [{"length": np.int32(3)}, {"length": np.array(5)}]
    (batch,) = arrays(Batches(examples, signature, batch_size=2, shuffle=False).batches(0))
    assert batch["length"].tolist() == [3, 5]


def test_several_targets_of_a_source_are_padded_in_number_and_length():
    examples = [{"tokens": np.ones((2, 3), int)}, {"tokens": np.full((1, 4), 2)}]
    signature = {"tokens": tf.TensorSpec((None, None), tf.int32)}
    batch = arrays(Batches(examples, signature, batch_size=2, shuffle=False, pad_to_multiple=8).batches(0))[0]
    assert batch["tokens"].shape == (2, 2, 8)
    assert batch["tokens"].sum(axis=(1, 2)).tolist() == [6, 8]


def test_the_end_of_an_epoch_waits_for_no_tuner():
    dataset = make([2, 3, 4], batch_size=3).batches(0)
    assert not dataset.options().autotune.enabled
    assert len(list(dataset)) == 1


def test_shapes_are_known_as_far_as_they_are_fixed():
    spec = make([3, 4], batch_size=2).batches(0).element_spec
    assert spec["source"]["features"].shape.as_list() == [None, None, 3]
    assert spec["tokens"].shape.as_list() == [None, None]
    assert make([3, 4], batch_size=1).batches(0).cardinality() == 2


def add_noise(example, random, epoch):
    features = example["source"]["features"]
    return example | {"source": example["source"] | {"features": features + random.normal(size=features.shape)}}


@pytest.mark.parametrize("start", [0, 1, 4, 9])
def test_going_on_in_the_middle_gives_the_rest_of_the_epoch(start):
    lengths = np.arange(1, 18)
    whole = arrays(make(lengths, batch_size=2, augment=add_noise).batches(3))
    rest = arrays(make(lengths, batch_size=2, augment=add_noise, threads=1).batches(3, start=start))
    assert_equal(whole[start:], rest)


def test_going_on_computes_nothing_of_what_came_before():
    asked = []

    class Examples:
        def __len__(self):
            return 100

        def __getitem__(self, index):
            asked.append(index)
            return {"tokens": np.ones(2, int)}

    batches = Batches(Examples(), TOKENS, batch_size=1)
    assert len(arrays(batches.batches(0, start=97))) == 3
    assert sorted(asked) == sorted(int(batches.rows(0, number)[0]) for number in (97, 98, 99))


def test_augmentation_differs_by_epoch_and_not_by_batch_size():
    def features(epoch, batch_size):
        batches = make([3] * 6, batch_size=batch_size, augment=add_noise, seed=5)
        rows = np.concatenate([batches.rows(epoch, number) for number in range(batches.num_batches(epoch))])
        values = np.concatenate([batch["source"]["features"] for batch in arrays(batches.batches(epoch))])
        return values[np.argsort(rows)]

    np.testing.assert_array_equal(features(0, 2), features(0, 3))
    assert not np.isclose(features(0, 2), features(1, 2)).any()


def test_an_augmentation_is_told_the_epoch():
    def count_epochs(example, random, epoch):
        return example | {"tokens": np.full(2, epoch)}

    batches = make([3, 3], batch_size=2, augment=count_epochs)
    for epoch in (0, 4):
        assert (arrays(batches.batches(epoch))[0]["tokens"] == epoch).all()


def test_shards_hold_the_rows_of_the_batch():
    lengths = [5, 2, 9, 4, 7]
    one = make(lengths, batch_size=4)
    for number, batch in enumerate(arrays(one.batches(1))):
        parts = [arrays(make(lengths, batch_size=4).batches(1, number, shard, 2))[0] for shard in (0, 1)]
        whole = sorted(batch["tokens"].max(axis=1))
        real = [row for part in parts for row in part["tokens"].max(axis=1) if row]
        assert sorted(real) == whole


def test_a_shard_without_an_example_gets_a_row_of_zeros():
    batch = arrays(make([5], batch_size=4).batches(0, shard=1, num_shards=2))[0]
    assert batch["tokens"].shape == (1, 2)
    assert batch["source"]["features"].shape == (1, 2, 3)
    assert not any(array.any() for array in tf.nest.flatten(batch))


def test_an_epoch_may_select_examples_and_repeat_some():
    def select(epoch, random):
        return [0, 0, 2] if epoch else [1]

    batches = make([3, 3, 3], batch_size=3, select=select, augment=add_noise)
    assert batches.rows(0, 0).tolist() == [1]
    assert sorted(batches.rows(1, 0)) == [0, 0, 2]
    features = arrays(batches.batches(1))[0]["source"]["features"]
    assert len({row.tobytes() for row in features}) == 3


def test_an_example_that_fails_is_named():
    class Examples(list):
        def __getitem__(self, index):
            raise OSError("photo.jpg is cut off")

    batches = Batches(Examples("ab"), TOKENS, batch_size=2, shuffle=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Example 0 cannot be used: photo\.jpg is cut off"):
        arrays(batches.batches(0))


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ({"source": {}, "tokens": [1]}, r"it has no entry `source\.features`"),
        (speech(0, 2) | {"tokens": np.ones((2, 2), int)}, r"`tokens` must have shape \(None,\)\. Received: \(2, 2\)"),
        (speech(0, 2) | {"tokens": np.ones(2)}, r"`tokens` must be of type int32\. Received: float64"),
    ],
)
def test_an_example_that_does_not_fit_the_signature_is_an_error(example, message):
    batches = Batches([example], SPEECH, batch_size=1)
    with pytest.raises(ValueError, match=f"Example 0 cannot be used: {message}"):
        batches.compute(epoch=0, batch=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be at least 1. Received: batch_size=0"),
        ({"threads": 0}, "`threads` must be at least 1"),
        ({"pad_to_multiple": 0}, "`pad_to_multiple` must be at least 1"),
        ({"max_batch_length": 0}, "`max_batch_length` must be more than 0. Received: max_batch_length=0"),
        ({"lengths": None, "max_batch_length": 9}, "need the `lengths` of the examples"),
        ({"lengths": None, "short_first_epochs": 1}, "need the `lengths` of the examples"),
        ({"lengths": [1.0]}, r"must have one number for each of the 2 examples. Received: \(1,\)"),
        ({"lengths": [1.0, np.nan]}, "must be finite numbers"),
        ({"examples": []}, "must have at least one example"),
    ],
)
def test_wrong_arguments_are_errors(options, message):
    right = {"examples": [speech(0, 2), speech(1, 3)], "signature": SPEECH, "batch_size": 2, "lengths": [2, 3]}
    with pytest.raises(ValueError, match=message):
        Batches(**(right | options))


def test_wrong_places_are_errors():
    batches = make([2, 3], batch_size=1)
    with pytest.raises(ValueError, match=r"`start` must be between 0 and 2\. Received: start=3"):
        batches.batches(0, start=3)
    with pytest.raises(ValueError, match=r"`shard` must be between 0 and 1\. Received: shard=2"):
        batches.batches(0, shard=2, num_shards=2)
    with pytest.raises(ValueError, match="`select` gave index 7, but there are 1 examples"):
        make([2], batch_size=1, select=lambda epoch, random: [7]).num_batches(0)
    with pytest.raises(ValueError, match="`select` gave no example for epoch 3"):
        make([2], batch_size=1, select=lambda epoch, random: []).num_batches(3)


def test_examples_are_freed_with_the_last_iterator():
    batches = make([2, 3, 4], batch_size=1)
    reference = weakref.ref(batches)
    iterator = iter(batches.batches(0))
    next(iterator)
    del batches
    gc.collect()
    assert len(list(iterator)) == 2
    del iterator
    gc.collect()
    assert reference() is None
