import inspect

import keras


class ConstructorConfig:
    """A Keras layer or model whose configuration is its constructor: every argument is an attribute of the same name.

    An argument that is a layer is serialized without the shapes it was built with: its parent builds it.
    """

    def get_config(self):
        config = super().get_config()
        for name, parameter in inspect.signature(type(self).__init__).parameters.items():
            if name == "self" or parameter.kind == inspect.Parameter.VAR_KEYWORD:
                continue
            value = getattr(self, name)
            if isinstance(value, keras.layers.Layer):
                value = keras.saving.serialize_keras_object(value)
                value.pop("build_config", None)
            config[name] = value
        return config

    @classmethod
    def from_config(cls, config):
        layers = {
            name: keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
            if name != "dtype" and isinstance(value, dict) and "registered_name" in value
        }
        return super().from_config({**config, **layers})
