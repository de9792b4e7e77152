"""TensorFlow without the lines that it writes to standard error; see `attention_apps.quiet`."""

import os
import sys

from attention_apps.quiet import only_python_on_stderr as only_python_on_stderr


def import_tensorflow_quietly(quiet: bool = False) -> None:
    """Imports TensorFlow and lets it look for devices, its greetings left out; errors are raised all the same.

    It takes seconds, so a terminal gets a line first, unless `quiet`.
    """
    if sys.stderr.isatty() and not quiet:
        print("attention-apps: loading TensorFlow and the model ...", file=sys.stderr, flush=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with only_python_on_stderr():
        import tensorflow as tf

        tf.config.list_physical_devices()
