"""`attention-apps train` in two processes that share the work, as `TF_CONFIG` tells them."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attention_apps.cli import main
from attention_apps.training.config import to_toml
from tests.applications.summarizers import CONFIGS, make_rows, make_summarizer, write_jsonl
from tests.training.test_train_step import free_ports

CHANGES = ("training.epochs=1", "training.batch_size=6", "training.validate_every=1", "training.log_every=1")


def command(folder):
    """What is typed after `attention-apps`, but for the output."""
    words = ["train", "text_summarization", "--quiet"]
    for option, value in (("data", "data.jsonl"), ("validation", "data.jsonl"), ("config", "config.toml")):
        words += [f"--{option}", str(folder / value)]
    return words


def start(folder, output, workers, index):
    cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    words = [sys.executable, "-m", "attention_apps", *command(folder), "--output", str(output)]
    environment = {**os.environ, "TF_CONFIG": json.dumps(cluster)}
    return subprocess.Popen(words, env=environment, cwd=Path(__file__).parents[2])


def losses(output):
    with (output / "cross_entropy" / "training.csv").open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_the_same_command_on_two_workers_trains_as_on_one(tmp_path):
    write_jsonl(tmp_path / "data.jsonl", make_rows("generate", 16))
    (tmp_path / "config.toml").write_text(to_toml(make_summarizer(CONFIGS["generate"], CHANGES).config))
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    processes = [start(tmp_path, tmp_path / "two", workers, index) for index in range(2)]
    try:
        assert main([*command(tmp_path), "--output", str(tmp_path / "one")]) == 0
        assert [process.wait(timeout=400) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    assert len(losses(tmp_path / "one")) == 3
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), atol=1e-4)
    assert (tmp_path / "two" / "preset" / "SHA256SUMS").exists()
