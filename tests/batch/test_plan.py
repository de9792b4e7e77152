import json

import pytest

from attention_apps.batch.inputs import Selection
from attention_apps.batch.plan import PLAN, Part, Span, make_parts, open_plan, part_name
from attention_apps.batch.storage import Storage

TEXTS = Selection("document", is_path=False, lines=True)
SETTINGS = {"verb": "summarize", "search": {"beam_size": 4}}


@pytest.fixture
def files(tmp_path):
    """A text of three lines, a manifest of seven rows, an empty manifest, and a file that is read as a whole."""
    (tmp_path / "lines.txt").write_text("1\n2\n3\n")
    (tmp_path / "rows.csv").write_text("document\n" + "".join(f"{number}\n" for number in range(4, 11)))
    (tmp_path / "empty.csv").write_text("document\n")
    return [str(tmp_path / name) for name in ("lines.txt", "rows.csv", "empty.csv", "whole.txt")]


@pytest.fixture
def storage(tmp_path):
    (tmp_path / "results").mkdir()
    return Storage(str(tmp_path / "results"), "jsonl")


def contents(part):
    return [item if item.contents is None else int(item.contents) for item in part.items(TEXTS)]


@pytest.mark.parametrize("size", range(1, 14))
def test_parts_hold_every_input_once_and_in_order(files, size):
    parts = list(make_parts(files, TEXTS, size, whole={files[-1]}))
    found = [contents(part) for part in parts]
    assert [item for items in found for item in items] == [*range(1, 11), files[-1]]
    assert [len(items) for items in found[:-1]] == [size] * (len(found) - 1)
    assert 1 <= len(found[-1]) <= size
    assert [part.count for part in parts] == [len(items) for items in found]
    assert [part.name for part in parts] == [part_name(number) for number in range(len(parts))]


def test_names_of_parts_sort_like_the_parts():
    names = [part_name(number) for number in (0, 9, 10, 999_999, 1_000_000)]
    assert sorted(names) == names


def test_a_plan_is_read_again_and_not_made_anew(files, storage):
    plan = open_plan(storage, SETTINGS, lambda: make_parts(files, TEXTS, 4, {files[-1]}))
    assert open_plan(storage, SETTINGS, lambda: pytest.fail("was made again")) == plan
    assert [contents(part) for part in plan.parts][-1] == [9, 10, files[-1]]


def test_a_plan_is_json_that_lists_the_parts_and_a_hash_of_the_settings(storage):
    open_plan(storage, SETTINGS, lambda: iter([Part("part-0000000", (Span("a.jpg"), Span("\udcff.jpg")))]))
    values = json.loads(storage.read(PLAN))
    assert values["settings"] == SETTINGS
    assert len(values["settings_sha256"]) == 64
    assert values["parts"] == [{"name": "part-0000000", "spans": [["a.jpg"], ["\udcff.jpg"]]}]


def test_other_settings_are_refused(storage):
    open_plan(storage, SETTINGS, lambda: iter([Part("part-0000000", (Span("a.jpg"),))]))
    other = {**SETTINGS, "search": {"beam_size": 5}}
    message = "has results of other settings .search was {'beam_size': 4} and is {'beam_size': 5}.. Use another output"
    with pytest.raises(ValueError, match=message):
        open_plan(storage, other, lambda: iter([]))


def test_a_changed_manifest_is_refused(files, storage):
    open_plan(storage, SETTINGS, lambda: make_parts(files[:2], TEXTS, 4))
    with open(files[1], "a") as file:
        file.write("11\n")
    with pytest.raises(ValueError, match="rows.csv has changed since the first run"):
        open_plan(storage, SETTINGS, lambda: iter([]))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2}'])
def test_what_is_no_plan_is_refused(storage, text):
    storage.write(PLAN, text.encode())
    with pytest.raises(ValueError, match="_plan.json is not a plan"):
        open_plan(storage, SETTINGS, lambda: iter([]))


def test_a_plan_whose_settings_were_edited_is_refused(storage):
    open_plan(storage, SETTINGS, lambda: iter([]))
    storage.write(PLAN, storage.read(PLAN).replace(b'"beam_size": 4', b'"beam_size": 5'))
    with pytest.raises(ValueError, match="its format or its hash is wrong"):
        open_plan(storage, SETTINGS, lambda: iter([]))


def test_results_without_a_plan_are_refused(storage):
    storage.write("part-0000000.jsonl", b"")
    with pytest.raises(ValueError, match="has results, but no _plan.json"):
        open_plan(storage, SETTINGS, lambda: iter([]))
