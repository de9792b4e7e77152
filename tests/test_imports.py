"""What is imported when, seen in a fresh process."""

import subprocess
import sys

import keras
import pytest

from attention_apps.layers import AdditiveAttention

HEAVY = ("tensorflow", "keras", "keras_hub", "tensorflow_text", "matplotlib", "torch", "jax", "gradio")


def run_python(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, attention_apps; print(*sorted(set(sys.argv[1:]) & set(sys.modules)))"
    assert run_python(code, *HEAVY).split() == []


def test_help_imports_nothing_heavy():
    code = """
import sys
from attention_apps.cli import main
heavy, sys.argv[1:] = set(sys.argv[1:]), ["--help"]
try:
    main()
except SystemExit as stop:
    assert stop.code == 0, stop.code
print("imported:", *sorted(heavy & set(sys.modules)))
"""
    text = run_python(code, *HEAVY)
    assert "usage: attention-apps" in text
    assert text.splitlines()[-1] == "imported:"


LAZY_PACKAGES = (
    "attention_apps",
    *(f"attention_apps.{name}" for name in ("applications", "data", "metrics", "serving", "training")),
)


def test_every_public_name_is_there():
    code = """
import importlib, sys
for package in map(importlib.import_module, sys.argv[1:]):
    assert package.__all__, package
    for name in package.__all__:
        getattr(package, name)
"""
    run_python(code, *LAZY_PACKAGES)


def test_importing_a_package_with_lazy_names_imports_nothing_heavy():
    code = """
import importlib, sys
heavy, packages = sys.argv[1].split(","), sys.argv[2:]
for package in packages:
    importlib.import_module(package)
print(*sorted(set(heavy) & set(sys.modules)))
"""
    assert run_python(code, ",".join(HEAVY), *LAZY_PACKAGES).split() == []


def test_the_applications_import_nothing_that_only_training_plots_and_pages_use():
    code = """
import sys
import keras, tensorflow  # which import pandas and matplotlib themselves where these are installed
before = set(sys.modules)
from attention_apps.applications.tasks import TASKS, application_class
for task in TASKS:
    application_class(task)
print(*sorted(set(sys.argv[1:]) & (set(sys.modules) - before)))
"""
    unused = ("gradio", "jiwer", "keras_hub", "matplotlib", "nltk", "pandas", "rouge_score", "sacrebleu", "scipy.stats")
    assert run_python(code, *unused).split() == []


def test_an_unknown_name_is_an_attribute_error():
    code = "import attention_apps\ntry: attention_apps.nothing\nexcept AttributeError as error: print(error)"
    assert "attribute nothing" in run_python(code)


def test_onednn_is_on_unless_the_user_has_said_otherwise():
    code = "import os, attention_apps; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"
    assert run_python(code).strip() == "1"
    assert run_python("import os; os.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'\n" + code).strip() == "0"


@pytest.mark.slow
def test_a_fresh_process_loads_a_saved_model_after_importing_the_layers(tmp_path):
    query, value = keras.Input((3, 4)), keras.Input((5, 6))
    context, weights, _ = AdditiveAttention(7)(query, value)
    load = """
import sys, keras
import attention_apps.layers
print(len(keras.models.load_model(sys.argv[1]).weights))
"""
    path = str(tmp_path / "model.keras")
    keras.Model([query, value], [context, weights]).save(path)
    assert run_python(load, path).split()[-1] == "3"
