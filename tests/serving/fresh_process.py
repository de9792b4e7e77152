"""Calls exported models in another process, where what they must not need cannot be imported.

The process stays for the next export, because TensorFlow takes seconds to be imported.
"""

import atexit
import functools
import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

_SECONDS = 300
_PROGRAM = """
import json, pickle, sys, traceback
for name in ("attention_apps", "keras", "keras_hub", "keras_nlp", "tensorflow_text", "tf_keras"):
    sys.modules[name] = None  # an import of it fails
import tensorflow as tf

def answer(folder, calls, answers):
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

for line in sys.stdin:
    try:
        answer(*json.loads(line))
        print("answered", flush=True)
    except Exception:
        traceback.print_exc()
        print("failed", flush=True)
"""


def call_in_fresh_process(folder, calls, scratch):
    """The outputs of each call, a pair of a signature's name and its inputs."""
    (scratch / "calls.pickle").write_bytes(pickle.dumps(calls))
    arguments = [str(folder), str(scratch / "calls.pickle"), str(scratch / "answers.pickle")]
    process, errors = _start()
    before = len(errors.read_text(encoding="utf-8"))
    watchdog = threading.Timer(_SECONDS, process.kill)
    watchdog.start()
    try:
        print(json.dumps(arguments), file=process.stdin, flush=True)
        is_answered = process.stdout.readline() == "answered\n"
    finally:
        watchdog.cancel()
    told = errors.read_text(encoding="utf-8")[before:]
    if not is_answered:  # whatever comes next gets another process
        process.kill()
        _start.cache_clear()
    assert is_answered, told
    assert "custom gradients" not in told, told
    return pickle.loads((scratch / "answers.pickle").read_bytes())


@functools.cache
def _start():
    """The process, and the file of what it writes to standard error."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    with (folder / "errors.txt").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
        )
    atexit.register(process.kill)
    return process, folder / "errors.txt"
