"""How parts of a model are written into the configuration of the whole."""

import keras


def serialize_unbuilt(layer):
    """A layer's configuration without the shapes it was built for: whoever holds the layer builds it."""
    if layer is None:
        return None
    config = keras.saving.serialize_keras_object(layer)
    return {name: value for name, value in config.items() if name != "build_config"}
