"""Calls an exported model in a process of its own, where what it must not need cannot be imported."""

import pickle
import subprocess
import sys

_PROGRAM = """
import pickle, sys
folder, calls, answers = sys.argv[1:]
for name in ("attention_apps", "keras", "keras_hub", "keras_nlp", "tensorflow_text", "tf_keras"):
    sys.modules[name] = None  # an import of it fails
import tensorflow as tf
with open(calls, "rb") as file:
    calls = pickle.load(file)
signatures = tf.saved_model.load(folder).signatures
results = []
for signature, inputs in calls:
    specs = signatures[signature].structured_input_signature[1]
    tensors = {name: tf.constant(value, specs[name].dtype) for name, value in inputs.items()}
    results.append({name: tensor.numpy() for name, tensor in signatures[signature](**tensors).items()})
with open(answers, "wb") as file:
    pickle.dump(results, file)
"""


def call_in_fresh_process(folder, calls, scratch):
    """The outputs of each call, a pair of a signature's name and its inputs."""
    (scratch / "calls.pickle").write_bytes(pickle.dumps(calls))
    arguments = [str(folder), str(scratch / "calls.pickle"), str(scratch / "answers.pickle")]
    command = [sys.executable, "-I", "-c", _PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=scratch)
    assert done.returncode == 0, done.stderr
    assert "custom gradients" not in done.stderr, done.stderr
    return pickle.loads((scratch / "answers.pickle").read_bytes())
