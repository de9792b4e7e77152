"""What every attention layer has to fulfil, as functions of a zero-argument factory of the layer.

`check_attention_contract(make_layer)` runs all checks; `ATTENTION_CHECKS` lists them for `parametrize`. Each
takes `query_dim` as well, for layers whose query and value differ in size. The factory leaves out dropout.
"""

import inspect
import os
import tempfile

import keras
import numpy as np
from keras import ops, tree

BATCH, TARGET, SOURCE, VALUE_DIM = 2, 3, 5, 7


def check_shapes(make_layer, query_dim=VALUE_DIM):
    """Three values with the shapes of the contract; the state keeps its structure, batch axis first."""
    layer, (query, value, mask) = make_layer(), example(query_dim)
    context, weights, state = call(layer, query, value, mask)
    assert tuple(context.shape) == (BATCH, TARGET, VALUE_DIM)
    assert tuple(weights.shape) == (BATCH, TARGET, SOURCE)
    first_state = layer.init_state(ops.convert_to_tensor(value))
    tree.assert_same_structure(first_state, state)
    for before, after in zip(tree.flatten(first_state), tree.flatten(state)):
        assert before.shape[0] == BATCH
        assert (before.shape, before.dtype) == (after.shape, after.dtype)


def check_config(make_layer, query_dim=VALUE_DIM):
    """Every constructor argument is an attribute and in the config, which makes the same layer again."""
    layer = make_layer()
    config = layer.get_config()
    for name, parameter in inspect.signature(type(layer).__init__).parameters.items():
        if name != "self" and parameter.kind != inspect.Parameter.VAR_KEYWORD:
            assert name in config, f"`{name}` is missing in the config of {type(layer).__name__}"
            assert hasattr(layer, name)
    assert type(layer).from_config(config).get_config() == config


def check_keras_round_trip(make_layer, query_dim=VALUE_DIM):
    """A functional model with the layer in it answers the same after `save` and `load_model`."""
    model = functional_model(make_layer(), query_dim)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        reloaded = keras.models.load_model(path)
    inputs = list(example(query_dim))
    assert_close(reloaded(inputs), model(inputs))


def check_mixed_precision(make_layer, query_dim=VALUE_DIM):
    """Half-precision outputs near the float32 ones, float32 variables, finite gradients."""
    inputs = example(query_dim)
    keras.utils.set_random_seed(0)  # where a layer chooses or cuts off, rounding may tip the balance
    reference = make_layer()
    expected = call(reference, *inputs)[:2]
    for dtype in ("float16", "bfloat16"):
        layer = with_policy(f"mixed_{dtype}", make_layer)
        context, weights, _ = call(layer, *inputs)
        assert keras.backend.standardize_dtype(context.dtype) == dtype
        assert keras.backend.standardize_dtype(weights.dtype) == dtype
        assert all(keras.backend.standardize_dtype(v.dtype) == "float32" for v in layer.trainable_variables)
        layer.set_weights(reference.get_weights())
        assert_close(call(layer, *inputs)[:2], expected, tolerance=0.05)
        assert_finite(gradients(layer, *inputs))


def check_dynamic_shapes(make_layer, query_dim=VALUE_DIM):
    """One trace with unknown batch and lengths serves every batch size and length."""
    layer = make_layer()
    call(layer, *example(query_dim))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        specifications = [
            ((None, None, query_dim), "float32"),
            ((None, None, VALUE_DIM), "float32"),
            ((None, None), "bool"),
        ]
        traced = tf.function(
            lambda *inputs: call(layer, *inputs)[:2],
            input_signature=[tf.TensorSpec(*s) for s in specifications],
        )
    else:
        traced = functional_model(layer, query_dim)
    for sizes in ((BATCH, TARGET, SOURCE), (4, 1, 6), (1, 5, 2)):
        inputs = example(query_dim, *sizes)
        outputs = traced(*inputs) if keras.backend.backend() == "tensorflow" else traced(list(inputs))
        assert_close(outputs, call(layer, *inputs)[:2])


def check_fit(make_layer, query_dim=VALUE_DIM):
    """`model.fit` trains through the layer, and changes its weights if it has any."""
    layer = make_layer()
    inner = functional_model(layer, query_dim)
    model = keras.Model(inner.inputs, keras.layers.Dense(1)(inner.outputs[0]))
    before = layer.get_weights()
    model.compile("adam", "mse")
    inputs = list(example(query_dim, batch=4))
    history = model.fit(inputs, np.ones((4, TARGET, 1), "float32"), batch_size=2, epochs=2, verbose=0)
    assert np.all(np.isfinite(history.history["loss"]))
    if layer.trainable_variables:
        assert any(np.any(old != new) for old, new in zip(before, layer.get_weights()))


def check_compiled(make_layer, query_dim=VALUE_DIM):
    """Under XLA the outputs are the same and the gradients finite."""
    layer = make_layer()
    inputs = [ops.convert_to_tensor(x) for x in example(query_dim)]
    expected = call(layer, *inputs)[:2]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        compiled = tf.function(lambda *x: (call(layer, *x)[:2], gradients(layer, *x)), jit_compile=True)
    elif keras.backend.backend() == "jax":
        import jax

        compiled = jax.jit(lambda *x: (call(layer, *x)[:2], gradients(layer, *x)))
    else:
        return
    outputs, found = compiled(*inputs)
    assert_close(outputs, expected)
    assert_finite(found)


def check_masked_positions(make_layer, query_dim=VALUE_DIM):
    """What stands in the padding changes nothing, and gets no weight."""
    layer, (query, value, mask) = make_layer(), example(query_dim)
    outputs = call(layer, query, value, mask)
    changed = np.where(mask[..., None], value, 100 + value)
    assert_close(call(layer, query, changed, mask)[:2], outputs[:2])
    weights = ops.convert_to_numpy(outputs[1])
    assert np.all(weights[np.broadcast_to(~mask[:, None], weights.shape)] == 0)


def check_fully_masked_row(make_layer, query_dim=VALUE_DIM):
    """A row of nothing but padding has zero weights and finite gradients, and leaves the other rows alone."""
    layer, (query, value, mask) = make_layer(), example(query_dim)
    expected = call(layer, query, value, mask)[1]
    mask[0] = False
    context, weights, state = call(layer, query, value, mask)
    assert_finite((context, weights, state))
    assert np.all(ops.convert_to_numpy(weights)[0] == 0)
    assert_close(weights[1], expected[1])
    assert_finite(gradients(layer, query, value, mask))


def check_prepared(make_layer, query_dim=VALUE_DIM):
    """What `prepare` returns can be handed in instead of being computed again."""
    layer, (query, value, mask) = make_layer(), example(query_dim)
    expected = call(layer, query, value, mask)
    prepared = layer.prepare(ops.convert_to_tensor(value))
    assert all(x.shape[0] == BATCH for x in tree.flatten(prepared) if x is not None)
    assert_close(call(layer, query, value, mask, prepared=prepared), expected)


def check_stepwise(make_layer, query_dim=VALUE_DIM):
    """One target position at a time, the state handed on, gives what all positions at once give."""
    layer, (query, value, mask) = make_layer(), example(query_dim)
    expected = call(layer, query, value, mask)
    prepared, state = (
        layer.prepare(ops.convert_to_tensor(value)),
        layer.init_state(ops.convert_to_tensor(value)),
    )
    steps = []
    for position in range(TARGET):
        one = query[:, position : position + 1]
        context, weights, state = call(layer, one, value, mask, prepared=prepared, state=state)
        steps.append((context, weights))
    joined = [ops.concatenate(parts, axis=1) for parts in zip(*steps)]
    assert_close((*joined, state), expected)


ATTENTION_CHECKS = (
    check_shapes,
    check_config,
    check_keras_round_trip,
    check_mixed_precision,
    check_dynamic_shapes,
    check_fit,
    check_compiled,
    check_masked_positions,
    check_fully_masked_row,
    check_prepared,
    check_stepwise,
)


def check_attention_contract(make_layer, query_dim=VALUE_DIM):
    """All of the above."""
    for check in ATTENTION_CHECKS:
        check(make_layer, query_dim)


def example(query_dim=VALUE_DIM, batch=BATCH, target=TARGET, source=SOURCE):
    """Query, value and mask as NumPy arrays; each row's source has a length of its own."""
    generator = np.random.default_rng(0)
    query = generator.normal(size=(batch, target, query_dim)).astype("float32")
    value = generator.normal(size=(batch, source, VALUE_DIM)).astype("float32")
    lengths = source - np.arange(batch) % source
    return query, value, np.arange(source)[None] < lengths[:, None]


def call(layer, query, value, mask=None, training=None, **kwargs):
    """Calls the layer, with `training` where it is an argument of its call."""
    if training is not None and "training" in inspect.signature(layer.call).parameters:
        kwargs["training"] = training
    mask = None if mask is None else ops.convert_to_tensor(mask)
    return layer(ops.convert_to_tensor(query), ops.convert_to_tensor(value), value_mask=mask, **kwargs)


def functional_model(layer, query_dim=VALUE_DIM):
    query = keras.Input((None, query_dim), name="query")
    value = keras.Input((None, VALUE_DIM), name="value")
    mask = keras.Input((None,), dtype="bool", name="mask")
    context, weights, _ = layer(query, value, value_mask=mask)
    return keras.Model([query, value, mask], [context, weights])


def with_policy(policy, make_layer):
    """The layer as made while `policy` is Keras' global dtype policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        return make_layer()
    finally:
        keras.config.set_dtype_policy(before)


def gradients(layer, query, value, mask):
    """In training, of the summed context and squared weights, by query, value and the trainable variables."""
    if not layer.built:
        call(layer, query, value, mask)
    inputs = [ops.convert_to_tensor(query), ops.convert_to_tensor(value)]
    return _GRADIENTS[keras.backend.backend()](layer, inputs, ops.convert_to_tensor(mask))


def _loss(outputs):
    return ops.sum(ops.cast(outputs[0], "float32")) + ops.sum(ops.square(ops.cast(outputs[1], "float32")))


def _tensorflow_gradients(layer, inputs, mask):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = _loss(call(layer, *inputs, mask, training=True))
    wanted = [*inputs, *(variable.value for variable in layer.trainable_variables)]
    return tape.gradient(loss, wanted, unconnected_gradients="zero")


def _jax_gradients(layer, inputs, mask):
    import jax

    options = {"training": True} if "training" in inspect.signature(layer.call).parameters else {}

    def loss(inputs, trainable):
        fixed = [variable.value for variable in layer.non_trainable_variables]
        return _loss(layer.stateless_call(trainable, fixed, *inputs, value_mask=mask, **options)[0])

    trainable = [variable.value for variable in layer.trainable_variables]
    return tree.flatten(jax.jit(jax.grad(loss, argnums=(0, 1)))(inputs, trainable))


def _torch_gradients(layer, inputs, mask):
    import torch

    inputs = [x.detach().requires_grad_() for x in inputs]
    loss = _loss(call(layer, *inputs, mask, training=True))
    wanted = [*inputs, *(variable.value for variable in layer.trainable_variables)]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [torch.zeros_like(x) if gradient is None else gradient for x, gradient in zip(wanted, found)]


_GRADIENTS = {"tensorflow": _tensorflow_gradients, "jax": _jax_gradients, "torch": _torch_gradients}


def assert_close(actual, expected, tolerance=1e-5):
    actual, expected = tree.flatten(actual), tree.flatten(expected)
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected):
        one, other = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in (one, other))
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def assert_finite(tensors):
    for tensor in tree.flatten(tensors):
        assert np.all(np.isfinite(ops.convert_to_numpy(ops.cast(tensor, "float32"))))
