"""Sizes are counted as documented, and a trace names the files that were entered."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SOURCE = '''
import typing

class Shape:
    """A class."""

    def area(
        self,
        scale,
    ):
        """Not counted.

        Nor is this."""
        # Before the first statement: not counted.
        side = 2

        # Between statements: counted.
        return scale * side**2

    def nothing(self):
        """Only a docstring."""

    @typing.overload
    def ignored(self): ...

def outer():
    def inner():
        return 1
    return inner
'''


@pytest.fixture
def code_size(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("code_size")


def test_bodies_are_counted_without_signature_and_docstring(code_size):
    assert sorted(code_size.body_lines(SOURCE)) == [1, 3, 4]


def test_each_package_is_measured_and_all_together(code_size, tmp_path):
    for name, count in {"top.py": 1, "first/a.py": 2, "first/deep/b.py": 3, "second/c.py": 4}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("".join(f"def f{index}():\n    return {index}\n" for index in range(count)))
    sizes = {size.name: size.to_dict() for size in code_size.measure_packages(tmp_path)}
    assert set(sizes) == {"first", "second", f"{tmp_path.name}/*.py", f"{tmp_path.name}, all"}
    assert sizes["first"]["files"] == 2
    assert sizes["first"]["lines"] == 10
    assert sizes[f"{tmp_path.name}, all"]["functions"] == 10
    assert sizes["second"]["median"] == sizes["second"]["90th percentile"] == 1


def test_a_folder_without_code_is_an_error(code_size, tmp_path):
    with pytest.raises(ValueError, match="`folder` must contain Python files"):
        code_size.measure_packages(tmp_path)


def test_a_trace_has_the_files_entered_and_not_those_only_imported(code_size, monkeypatch, tmp_path):
    package = tmp_path / "traced_package"
    package.mkdir()
    files = {
        "__init__.py": "",
        "start.py": "from traced_package import middle, unused\ndef run():\n    return middle.go() + middle.go()\n",
        "middle.py": "def go():\n    from traced_package import late\n    return late.end()\n",
        "late.py": "class Late:\n    value = 1\ndef end():\n    return Late.value\n",
        "unused.py": "class Unused:\n    pass\ndef never():\n    pass\n",
    }
    for name, source in files.items():
        (package / name).write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    def run():
        return importlib.import_module("traced_package.start").run()

    trace = code_size.trace_files(run, package)
    assert trace.files == ["start.py", "middle.py", "late.py"]
    assert {name for _, name, _ in trace.functions} == {"run", "go", "end"}
    assert trace.crossings == 5  # start, middle, late, middle, late
    assert sys.getprofile() is None


def test_the_package_is_measured_by_default():
    command = [sys.executable, BENCHMARKS / "code_size.py", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sizes = {size["package"]: size for size in json.loads(done.stdout)}
    total = sizes.pop("attention_apps, all")
    assert total["files"] == sum(size["files"] for size in sizes.values())
    assert total["functions"] == sum(size["functions"] for size in sizes.values())
    assert "layers" in sizes
