import contextlib
import pickle
import struct

import numpy as np
import pytest

from tests.recipes.loading import load

torch_weights = load("torch_weights", "image_captioning")
read_state_dict = torch_weights.read_state_dict

TYPES = {"float32": b"FloatStorage", "float16": b"HalfStorage", "int64": b"LongStorage"}


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    return b"J" + struct.pack("<i", value)


def numbers(values):
    return b"(" + b"".join(number(value) for value in values) + b"t"


def tensor(key, storage, shape=None, strides=None, offset=0):
    """The pickle of one tensor as PyTorch writes it."""
    shape = storage.shape if shape is None else shape
    strides = np.array(storage.strides) // storage.itemsize if strides is None else strides
    reference = text("storage") + b"ctorch\n" + TYPES[storage.dtype.name] + b"\n" + text(key) + text("cpu")
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(("
        + (reference + number(storage.size) + b"Nt" + b"Q")
        + (number(offset) + numbers(shape) + numbers(strides) + b"\x89ccollections\nOrderedDict\n)Rt")
        + b"R"
    )


def state_dict(entries):
    metadata = b"}" + text("_metadata") + b"ccollections\nOrderedDict\n)Rsb"
    items = b"".join(text(name) + value for name, value in entries.items())
    return b"\x80\x02ccollections\nOrderedDict\n)R(" + items + b"u" + metadata + b"."


def legacy_file(path, program, storages, little_endian=True):
    machine = {"protocol_version": 1001, "little_endian": little_endian, "type_sizes": {"int": 4}}
    parts = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, machine)]
    parts += [program, pickle.dumps(list(storages), 2)]
    parts += [struct.pack("<q", storage.size) + storage.tobytes() for storage in storages.values()]
    path.write_bytes(b"".join(parts))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.pth"


FLOATS = np.arange(24, dtype="float32")


def read(path, program, storages=None):
    return read_state_dict(legacy_file(path, program, {"7": FLOATS} if storages is None else storages))


def test_tensors_of_every_kind_come_back(path):
    storages = {"1": FLOATS.reshape(2, 3, 4), "2": np.array([5], "int64"), "3": np.array([1.5, -2], "float16")}
    entries = {"a.weight": tensor("1", storages["1"]), "count": tensor("2", storages["2"], (), ())}
    tensors = read(path, state_dict({**entries, "half": tensor("3", storages["3"])}), storages)
    assert list(tensors) == ["a.weight", "count", "half"]
    np.testing.assert_array_equal(tensors["a.weight"], storages["1"])
    assert tensors["count"].shape == ()
    assert tensors["count"] == 5
    np.testing.assert_array_equal(tensors["half"], storages["3"])
    assert [value.dtype.name for value in tensors.values()] == ["float32", "int64", "float16"]


def test_strides_and_offsets_are_honored_and_storages_shared(path):
    entries = {"turned": tensor("7", FLOATS, (4, 2), (1, 4), 8), "first": tensor("7", FLOATS, (3,), (1,))}
    tensors = read(path, state_dict(entries))
    np.testing.assert_array_equal(tensors["turned"], FLOATS[8:16].reshape(2, 4).T)
    np.testing.assert_array_equal(tensors["first"], [0, 1, 2])


def malicious(trap):
    """Pickles that would leave a file behind, each by another way."""
    touch, write = f"touch {trap}", f"open('{trap}', 'w')"
    return {
        "os.system": b"\x80\x02cos\nsystem\n" + text(touch) + b"\x85R.",
        "posix.system": b"\x80\x02cposix\nsystem\n" + text(touch) + b"\x85R.",
        "builtins.eval": b"\x80\x02cbuiltins\neval\n" + text(write) + b"\x85R.",
        "eval of Python 2": b"\x80\x02c__builtin__\neval\n" + text(write) + b"\x85R.",
        "protocol 4": b"\x80\x04" + text("os") + text("system") + b"\x93" + text(touch) + b"\x85R.",
        "instance": b"(S'" + touch.encode() + b"'\nios\nsystem\n.",
        "object": b"(cos\nsystem\nS'" + touch.encode() + b"'\no.",
        "unknown class": b"\x80\x02cmy_package\nMyModel\n)\x81.",
        "module of torch": b"\x80\x02ctorch.nn.modules.conv\nConv2d\n)R.",
        "dotted name": b"\x80\x02ccollections\nOrderedDict.fromkeys\n)R.",
        "extension": b"\x80\x02\x82\x01.",
    }


@pytest.mark.parametrize("name", malicious(""))
def test_a_pickle_that_calls_anything_else_is_refused_before_it_runs(name, path, tmp_path):
    trap = tmp_path / "trap"
    program = malicious(trap)[name]
    refusal = r"weights\.pth cannot be read as PyTorch weights: its pickle (asks for|holds the instruction)"
    with pytest.raises(ValueError, match=refusal):
        read(path, program)
    path.write_bytes(program)  # also as the very first pickle of the file
    with pytest.raises(ValueError, match=refusal):
        read_state_dict(path)
    assert not trap.exists()


def test_the_refused_name_is_in_the_message(path):
    with pytest.raises(ValueError, match="asks for `os system`; nothing but tensors is admitted"):
        read(path, b"\x80\x02cos\nsystem\n.")
    with pytest.raises(ValueError, match="the instruction STACK_GLOBAL, which no tensor needs"):
        read(path, malicious("trap")["protocol 4"])


@pytest.mark.parametrize(
    "arguments",
    [
        {"shape": (25,), "strides": (1,)},
        {"shape": (2, 12), "strides": (13, 1)},
        {"shape": (24,), "strides": (1,), "offset": 1},
        {"shape": (1000, 1000, 1000), "strides": (0, 0, 0)},
        {"shape": (0,), "strides": (1,)},
        {"shape": (3,), "strides": (-1,), "offset": 5},
        {"shape": (-3,), "strides": (1,)},
        {"shape": (3,), "strides": (1,), "offset": -1},
        {"shape": (3,), "strides": (1, 1)},
    ],
)
def test_a_tensor_beyond_its_storage_is_refused(arguments, path):
    with pytest.raises(ValueError, match=r"reaches beyond its storage|impossible shape"):
        read(path, state_dict({"a": tensor("7", FLOATS, **arguments)}))


def test_damaged_files_are_refused(path):
    good = legacy_file(path, state_dict({"a": tensor("7", FLOATS)}), {"7": FLOATS}).read_bytes()
    for length in (0, 1, 10, 40, 200, len(good) - 97, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(ValueError, match=r"weights\.pth cannot be read"):
            read_state_dict(path)
    path.write_bytes(good + b"\0")
    with pytest.raises(ValueError, match="something follows"):
        read_state_dict(path)
    path.write_bytes(b"PK\x03\x04" + good)
    with pytest.raises(ValueError, match="only the legacy format"):
        read_state_dict(path)
    path.write_bytes(pickle.dumps(3, 2) + good)
    with pytest.raises(ValueError, match="does not begin as a legacy-format file does"):
        read_state_dict(path)
    with pytest.raises(ValueError, match="not little-endian"):
        read_state_dict(legacy_file(path, state_dict({}), {}, little_endian=False))


def test_flipped_bytes_give_tensors_or_a_value_error(path):
    good = legacy_file(
        path, state_dict({"a": tensor("7", FLOATS), "b": tensor("7", FLOATS)}), {"7": FLOATS}
    ).read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(500):
        content = bytearray(good)
        for position in generator.integers(0, len(good) - FLOATS.nbytes, 2):
            content[position] = generator.integers(0, 256)
        path.write_bytes(content)
        with contextlib.suppress(ValueError):
            assert all(value.dtype.name in TYPES for value in read_state_dict(path).values())


def test_what_is_not_a_tensor_is_named(path):
    with pytest.raises(ValueError, match="entry 'a' is not a tensor"):
        read(path, state_dict({"a": number(3)}))
    with pytest.raises(ValueError, match="holds no state dict"):
        read(path, b"\x80\x02].")
    with pytest.raises(ValueError, match="a int where a str belongs"):
        read(path, b"\x80\x02}" + number(1) + number(2) + b"s.")
    with pytest.raises(ValueError, match="storages are not those"):
        read(path, state_dict({"a": tensor("8", FLOATS)}))


def test_sizes_are_limited(path, monkeypatch):
    good = legacy_file(path, state_dict({"a": tensor("7", FLOATS)}), {"7": FLOATS})
    monkeypatch.setattr(torch_weights, "MAX_INSTRUCTIONS", 20)
    with pytest.raises(ValueError, match="more than 20 instructions"):
        read_state_dict(good)
    monkeypatch.setattr(torch_weights, "MAX_FILE_BYTES", 100)
    with pytest.raises(ValueError, match="larger than the limit of 100 bytes"):
        read_state_dict(good)
