import dataclasses
import json
import string
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_apps.training import config as config_module
from attention_apps.training.config import (
    ScheduledSamplingConfig,
    SelfCriticalConfig,
    TrainingConfig,
    read_config,
    to_dict,
    to_toml,
)


def test_a_key_of_many_parts_takes_no_quadratic_time(tmp_path):
    path = tmp_path / "long.toml"
    rest = ".a" * (config_module.MAX_LINE_CHARACTERS // 2 - 10) + " = 1"
    path.write_text("\n".join(f"a{number}{rest}" for number in range(99)))
    start = time.process_time()
    with pytest.raises(ValueError, match="Unknown key|is not valid TOML"):
        read_config(TrainingConfig, path)
    assert time.process_time() - start < 5
    path.write_text("\n".join(f"a{number}{rest}" for number in range(103)))
    with pytest.raises(ValueError, match="must have at most 100,000 bytes"):  # 1 MB would take 1 GB of memory
        read_config(TrainingConfig, path)
    path.write_text("epochs = 3\n" + "a." * 20_000 + "a = 1")
    with pytest.raises(ValueError, match=r"long\.toml, line 2: a line must have at most 1,000 characters"):
        read_config(TrainingConfig, path)


def test_a_number_of_too_many_digits_names_its_file(tmp_path, monkeypatch):
    path = tmp_path / "digits.toml"
    path.write_text("epochs = " + "1" * 5000)
    with pytest.raises(ValueError, match=r"digits\.toml, line 1: a line"):
        read_config(TrainingConfig, path)
    monkeypatch.setattr(config_module, "MAX_LINE_CHARACTERS", 10_000)
    with pytest.raises(ValueError, match=r"digits\.toml: is not valid TOML: .* digits"):
        read_config(TrainingConfig, path)
    with pytest.raises(ValueError, match="`epochs` must be"):
        read_config(TrainingConfig, {}, ["epochs=" + "1" * 5000])


def test_an_empty_file_gives_the_defaults():
    assert read_config(TrainingConfig, {}) == TrainingConfig()


def test_the_resolved_configuration_reads_back_equal():
    config = read_config(
        TrainingConfig, {"ema": 0.99, "freeze": ["encoder/*"]}, ["clip_norm=none", "self_critical.epochs=2"]
    )
    assert config.clip_norm is None
    assert config.freeze == ("encoder/*",)
    assert config.self_critical == SelfCriticalConfig(epochs=2)
    assert read_config(TrainingConfig, tomllib.loads(to_toml(config))) == config


def test_a_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainingConfig().epochs = 3


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("epochs", 0, "at least 1"),
        ("max_steps", 0, "at least 1"),
        ("batch_size", 0, "at least 1"),
        ("max_batch_length", 0.0, "more than 0"),
        ("accumulate", 0, "at least 1"),
        ("short_first_epochs", -1, "at least 0"),
        ("learning_rate", 0.0, "more than 0"),
        ("warmup_steps", -1, "at least 0"),
        ("schedule", "steps", 'one of "constant", "cosine", "inverse_sqrt", "linear"'),
        ("final_learning_rate", 1.5, "between 0 and 1"),
        ("weight_decay", -0.1, "at least 0"),
        ("clip_norm", 0.0, "more than 0"),
        ("label_smoothing", 1.0, "at least 0 and less than 1"),
        ("doubly_stochastic", -1.0, "at least 0"),
        ("coverage", -1.0, "at least 0"),
        ("guided", -1.0, "at least 0"),
        ("ema", 1.0, "at least 0 and less than 1"),
        ("average_checkpoints", 0, "at least 1"),
        ("validate_every", 0, "at least 1"),
        ("validate_unit", "minutes", 'one of "epochs", "steps"'),
        ("patience", 0, "at least 1"),
        ("checkpoint_minutes", 0.0, "more than 0"),
        ("seed", -1, "at least 0"),
    ],
)
def test_a_value_out_of_range_is_an_error(name, value, expected):
    with pytest.raises(ValueError, match=f"^`{name}` must be {expected}. Received: {name}={value!r}$"):
        TrainingConfig(**{name: value})


def test_the_sections_check_their_values_too():
    with pytest.raises(ValueError, match=r"\[scheduled_sampling\] `probability` must be between 0 and 1"):
        read_config(TrainingConfig, {}, ["scheduled_sampling.probability=2"])
    with pytest.raises(ValueError, match="`ramp_steps` must be at least 0"):
        ScheduledSamplingConfig(ramp_steps=-1)
    with pytest.raises(ValueError, match=r"`samples` must be at least 2\. Received: samples=1"):
        SelfCriticalConfig(samples=1)
    assert SelfCriticalConfig(samples=1, baseline="greedy").samples == 1
    with pytest.raises(ValueError, match='`baseline` must be one of "greedy", "mean"'):
        SelfCriticalConfig(baseline="median")


def test_an_unknown_key_lists_the_known_ones():
    with pytest.raises(
        ValueError, match=r"Unknown key `learningrate`\. Did you mean `learning_rate`\? Known keys: epochs, "
    ):
        read_config(TrainingConfig, {"learningrate": 1.0})


@dataclass(frozen=True)
class Engine:
    power: float
    fuel: Literal["wind", "wood"] = "wind"

    def __post_init__(self):
        if self.power <= 0:
            raise ValueError(f"`power` must be more than 0. Received: power={self.power}")


@dataclass(frozen=True)
class Boat:
    seats: int | None = None


@dataclass(frozen=True)
class Ship:
    name: str = "Argo"
    crew: int = 50
    afloat: bool = True
    length: float | None = 20.0
    sails: tuple[str, ...] = ()
    hull: tuple[int, float] = (1, 2.0)
    home: Path = Path("harbour")
    cargo: dict[str, float] = field(default_factory=dict)
    notes: dict = field(default_factory=dict)
    engine: Engine = field(default_factory=lambda: Engine(power=1.0))
    spare: Engine | None = None
    boats: tuple[Boat, ...] = ()
    tag: int | str = 0


def test_a_file_is_read_with_its_sections(tmp_path):
    path = tmp_path / "ship.toml"
    path.write_bytes(
        b'\xef\xbb\xbfname = "Kon-Tiki"\nlength = 14\nsails = ["main"]\nhome = "a/b"\n[engine]\npower = 2\n'
    )
    ship = read_config(Ship, path)
    assert ship == Ship(name="Kon-Tiki", length=14.0, sails=("main",), home=Path("a/b"), engine=Engine(power=2.0))
    assert isinstance(ship.length, float)


def test_overrides_win_over_the_file_and_make_missing_sections():
    overrides = ["crew=3", "name=Old Boat", 'sails=["a", "b"]', "spare.power=7", "length=none", "cargo.gold=2.5"]
    ship = read_config(Ship, {"crew": 1, "name": "x"}, overrides)
    assert (ship.crew, ship.name, ship.sails, ship.length) == (3, "Old Boat", ("a", "b"), None)
    assert ship.spare == Engine(power=7.0)
    assert ship.cargo == {"gold": 2.5}


def test_an_override_does_not_change_the_dict_it_was_given():
    data = {"engine": {"power": 1.0}}
    read_config(Ship, data, ["engine.power=2"])
    assert data == {"engine": {"power": 1.0}}


def test_an_override_cannot_bring_in_a_second_key():
    assert read_config(Ship, {}, ["name=1\ncrew = 2"]) == Ship(name="1\ncrew = 2")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"nam": "x"}, r"Unknown key `nam`\. Did you mean `name`\? Known keys: name, crew, afloat, "),
        ({"zzzzzz": 1}, r"Unknown key `zzzzzz`\. Known keys: "),
        ({"z" * 900_000: 1}, rf"Unknown key `{'z' * 77}\.\.\.`\. Known keys: "),
        ({"engine": {"powr": 1}}, r"Unknown key `engine\.powr`\. Did you mean `power`\? Known keys: power, fuel"),
        ({"crew": "many"}, r"`crew` must be a valid integer\. Received: crew='many'"),
        ({"crew": True}, r"`crew` must be a valid integer\. Received: crew=True"),
        ({"crew": 1.0}, r"`crew` must be a valid integer"),
        ({"afloat": 1}, r"`afloat` must be a valid boolean\. Received: afloat=1"),
        ({"name": 3}, r"`name` must be a valid string\. Received: name=3"),
        ({"home": 3}, r"`home` must be a valid string"),
        ({"length": "long"}, r"`length` must be a valid number\. Received: length=\'long\'"),
        ({"length": float("inf")}, r"`length` must be a finite number\. Received: length=inf"),
        ({"sails": "main"}, r"`sails` must be a valid array\. Received: sails='main'"),
        ({"sails": ["main", 2]}, r"`sails\[1\]` must be a valid string\. Received: sails\[1\]=2"),
        ({"hull": [1]}, r"`hull\.1` is missing\."),
        ({"cargo": {"gold": "much"}}, r"`cargo\.gold` must be a valid number\. Received: cargo\.gold='much'"),
        ({"cargo": 3}, r"`cargo` must be an object\. Received: cargo=3"),
        ({"engine": 3}, r"`engine` must be an object\. Received: engine=3"),
        ({"engine": {}}, r"`engine\.power` is missing\."),
        ({"engine": {"power": 1, "fuel": "coal"}}, r'`engine\.fuel` must be one of "wind", "wood"\. Received: '),
        ({"engine": {"power": -1}}, r"\[engine\] `power` must be more than 0\. Received: power=-1\.0"),
        ({"spare": {"power": "x"}}, r"`spare\.power` must be a valid number"),
        ({"spare": {"powr": 1}}, r"Unknown key `spare\.powr`\. Did you mean `power`\? Known keys: power, fuel"),
        ({"boats": [{}, {"seat": 1}]}, r"Unknown key `boats\[1\]\.seat`\. Did you mean `seats`\? Known keys: seats"),
        ({"boats": [{"seats": "x"}]}, r"`boats\[0\]\.seats` must be a valid integer\. Received: boats\[0\]\.seats='x'"),
        ({"tag": 1.5}, r"`tag` must be a valid integer or a valid string\. Received: tag=1\.5"),
        ({"name": ["x" * 200]}, r"`name` must be a valid string\. Received: name=\['x+\.\.\.$"),
    ],
)
def test_a_mistake_is_named_with_its_key(data, message):
    with pytest.raises(ValueError, match=message):
        read_config(Ship, data)


@pytest.mark.parametrize("override", ["crew", "=3", "engine.=3", ""])
def test_an_override_without_key_or_value_is_an_error(override):
    with pytest.raises(ValueError, match=r"must have the form key=value or section\.key=value\. Received: "):
        read_config(Ship, {}, [override])


def test_an_override_below_a_value_is_an_error():
    with pytest.raises(ValueError, match=r"`crew` is not a section\. Received: 'crew\.size=3'"):
        read_config(Ship, {"crew": 3}, ["crew.size=3"])


def test_messages_name_the_file_and_the_overrides(tmp_path):
    path = tmp_path / "ship.toml"
    path.write_text("crew = 'many'\n")
    with pytest.raises(ValueError, match=rf"{path}: `crew` must be a valid integer"):
        read_config(Ship, path)
    with pytest.raises(ValueError, match=rf"{path} with crew=few: `crew` must be a valid integer"):
        read_config(Ship, path, ["crew=few"])


def test_bad_files_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "ship.toml"
    with pytest.raises(FileNotFoundError, match=f"There is no configuration file {path}"):
        read_config(Ship, path)
    path.write_text("crew = \n")
    with pytest.raises(ValueError, match=f"{path}: is not valid TOML: Invalid value"):
        read_config(Ship, path)
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(ValueError, match=f"{path}: is not UTF-8 text"):
        read_config(Ship, path)
    path.write_text("crew = " + "[\n" * 40_000)
    with pytest.raises(ValueError, match="is not valid TOML"):
        read_config(Ship, path)
    monkeypatch.setattr(config_module, "MAX_FILE_BYTES", 10)
    with pytest.raises(ValueError, match="must have at most 10 bytes"):
        read_config(Ship, path)


numbers = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text().filter(lambda text: text != "none")
keys = st.text(string.ascii_letters + '. "\\äß', min_size=1)
engines = st.builds(Engine, power=st.floats(1e-300, 1e300), fuel=st.sampled_from(["wind", "wood"]))
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=5,
)
ships = st.builds(
    Ship,
    name=texts,
    crew=st.integers(-(2**63), 2**63 - 1),
    afloat=st.booleans(),
    length=st.none() | numbers,
    sails=st.lists(texts).map(tuple),
    home=st.sampled_from([Path("a b/c"), Path("/x\ny")]),
    cargo=st.dictionaries(keys, numbers, max_size=3),
    engine=engines,
    spare=st.none() | engines,
    boats=st.lists(st.builds(Boat, seats=st.none() | st.integers(0, 9)), max_size=3).map(tuple),
    tag=st.integers(0, 9) | texts,
)


@settings(max_examples=50, deadline=None)
@given(ships)
def test_a_configuration_survives_toml_dict_and_json(ship):
    assert read_config(Ship, tomllib.loads(to_toml(ship))) == ship
    assert read_config(Ship, to_dict(ship)) == ship
    assert read_config(Ship, json.loads(json.dumps(to_dict(ship)))) == ship


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(keys, plain, max_size=3))
def test_free_tables_survive_toml(notes):
    def without_none(value):
        if isinstance(value, dict):
            return {key: without_none(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [without_none(entry) for entry in value]
        return "none" if value is None else value

    assert read_config(Ship, tomllib.loads(to_toml(Ship(notes=notes)))).notes == without_none(notes)
