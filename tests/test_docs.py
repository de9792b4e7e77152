"""Every Python block and every `attention-apps` line of the documentation runs, page by page, in the order in which it
stands there, with small stand-ins for the files and presets it names. Where a comment gives the value of a line, as in
`summary.confidence  # 0.66`, the line must have that value."""

import argparse
import ast
import contextlib
import re
import runpy
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

import attention_apps
from tests.doc_commands import blocks, check_inline, command_lines, inline_commands, parse, workplace

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
RECIPES = sorted((ROOT / "apps").glob("*/README.md"))
CARDS = sorted((ROOT / "weights").rglob("README.md"))
OWN_TESTS = ("new_application",)  # run by tests/test_new_application.py
SERVER, RPC_SERVER = "http://localhost:8501", "localhost:8500"


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python") and page.stem not in OWN_TESTS], ids=name_of
)
def test_the_python_of_a_page_runs(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (40, 60, 3), dtype=np.uint8)).save("photo.jpg")
    soundfile.write("call.wav", 0.1 * random.normal(size=16_000), 16_000)
    names = {"__name__": "__main__"}
    code = blocks(page, "python")
    if any("from_keras_hub" in block for block in code):
        use_small_keras_hub_models(monkeypatch)
    with served_models(tmp_path) if any(SERVER in block for block in code) else contextlib.nullcontext({}) as addresses:
        for number, block in enumerate(code, 1):
            for documented, real in addresses.items():
                block = block.replace(documented, real)
            run_block(block, f"{page.name}, block {number}", names)


def run_block(block, name, names):
    """Runs a block, statement by statement, and compares values with the comments that give them."""
    lines = block.encode().splitlines()
    for statement in ast.parse(block).body:
        comment = lines[statement.end_lineno - 1][statement.end_col_offset :].decode().strip().removeprefix("#").strip()
        if not isinstance(statement, ast.Expr) or not is_value(comment):
            exec(compile(ast.Module([statement], []), name, "exec"), names)
            continue
        value, expected = eval(compile(ast.Expression(statement.value), name, "eval"), names), ast.literal_eval(comment)
        is_same = value == (pytest.approx(expected, abs=0.01) if isinstance(expected, float) else expected)
        assert is_same, f"{name}, line {statement.lineno}: {value!r}, not {comment}"


def is_value(comment):
    try:
        ast.literal_eval(comment)
    except (SyntaxError, ValueError):
        return False
    return True


def test_a_value_that_differs_from_its_comment_is_found():
    run_block("number = 2 + 2\nnumber  # 4\nnumber / 3  # 1.33\nnumber  # the sum", "a page", {})
    with pytest.raises(AssertionError, match="a page, line 2: 4, not 5"):
        run_block("number = 2 + 2\nnumber  # 5", "a page", {})


def use_small_keras_hub_models(monkeypatch):
    """Random ones in place of those that KerasHub would download."""
    import keras_hub

    from tests.models.keras_hub_models import make_bart, make_t5

    stand_ins = {"bart_large_en_cnn": make_bart, "t5_small_multi": make_t5}
    monkeypatch.setattr(keras_hub.models.Seq2SeqLM, "from_preset", lambda name: stand_ins[name]())


@contextlib.contextmanager
def served_models(folder):
    """The addresses of servers, by those of the pages, with a small model under each name that these use."""
    pytest.importorskip("uvicorn", reason="the server needs the extra `serve`")
    pytest.importorskip("tensorflow_serving", reason="gRPC needs tensorflow-serving-api")
    from attention_apps.serving import LoadedModel
    from tests.serving.fake_model import running
    from tests.serving.rpc_server import running_rpc
    from tests.tiny_applications import make_application

    models = {"captioner": LoadedModel(make_application("captioner").export(folder / "exports" / "captioner"))}
    with running(models) as (url, _), running_rpc(models) as address:
        yield {SERVER: url, RPC_SERVER: address}


def test_python_in_other_blocks_is_python_at_least():
    for page in PAGES:
        for number, block in enumerate(blocks(page), 1):
            if re.match(r"(import|from) \w+", block):
                compile(block, f"{page.name}, block {number} that is not run", "exec")


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if command_lines(page)], ids=name_of)
def test_the_commands_of_a_page_run(page, monkeypatch, tmp_path, capsys):
    with workplace(tmp_path, monkeypatch) as place:
        for line in command_lines(page):
            assert place.run(line) == 0, f"{line}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("page", [*PAGES, *RECIPES, *CARDS], ids=name_of)
def test_the_commands_of_a_page_are_right_for_the_parser(page):
    for line in command_lines(page):
        parse(line)
    for code in inline_commands(page):
        check_inline(code)


@pytest.mark.parametrize("page", RECIPES, ids=name_of)
def test_the_steps_of_a_recipe_are_right_for_its_parser(page, monkeypatch):
    lines = command_lines(page, "python")
    assert lines
    for line in lines:
        script, *arguments = shlex.split(re.sub(r"\[(.*?)\]", r"\1", line), comments=True)[1:]
        with monkeypatch.context() as patch:
            path = (page.parent / script).resolve()
            patch.syspath_prepend(path.parent)  # as Python does for a script
            parse_step(path, arguments, patch)


def parse_step(script, arguments, monkeypatch):
    """Runs a script up to where its arguments are known to be right."""

    class ParsedError(Exception):
        pass

    parse_args = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser, *given):
        parse_args(parser, *given)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    try:
        with pytest.raises(ParsedError):
            runpy.run_path(str(script), run_name="__main__")
    finally:  # `dataset` is another module in the next recipe
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(ROOT / "apps")):
                del sys.modules[name]


def test_the_changelog_and_the_citation_know_the_version():
    assert f"\n## {attention_apps.__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {attention_apps.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [*PAGES, *RECIPES, *CARDS], ids=name_of)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target
