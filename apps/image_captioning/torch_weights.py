"""Reads a PyTorch state dict without PyTorch and without executing the code in its pickles.

The ImageNet weights of EfficientNet-Lite are only published in this format.
The file has PyTorch's legacy format (`torch.save` before version 1.6): five pickles (a magic number, the protocol, the
machine, the state dict, the keys of its storages), followed by the raw storages in the order of their keys. A pickle is
a program that may call any function; the unpickler below supports tensors and nothing else.
"""

import io
import math
import os
import pickletools
from typing import NamedTuple

import numpy as np

MAX_FILE_BYTES = 2**30
MAX_INSTRUCTIONS = 1_000_000
_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_PROTOCOL_VERSION = 1001
_STORAGE_TYPES = {"torch FloatStorage": "<f4", "torch HalfStorage": "<f2", "torch LongStorage": "<i8"}
_ORDERED_DICT = "collections OrderedDict"
_REBUILD_TENSOR = "torch._utils _rebuild_tensor_v2"


class _Name(NamedTuple):
    name: str


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype
    size: int


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_state_dict(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The tensors of a legacy-format PyTorch state dict, by name.

    Raises:
        ValueError: The file is too large, damaged, in another format, or contains more than tensors.
    """
    size = os.path.getsize(path)
    if size > MAX_FILE_BYTES:
        raise ValueError(f"{path} is larger than the limit of {MAX_FILE_BYTES} bytes. Received: {size} bytes")
    with open(path, "rb") as file:
        content = file.read()
    try:
        return _read(io.BytesIO(content), memoryview(content))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as PyTorch weights: {error}") from error


def _read(stream: io.BytesIO, content: memoryview) -> dict[str, np.ndarray]:
    _check_header(stream, content)
    tensors, keys = unpickle(stream), unpickle(stream)
    if not isinstance(tensors, dict) or not isinstance(keys, list):
        raise ValueError("it holds no state dict")
    for name, tensor in tensors.items():
        if not isinstance(tensor, _Tensor):
            raise ValueError(f"entry {name!r} is not a tensor")
    needed = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    storages = _read_storages(needed, keys, content, stream.tell())
    return {name: _view(name, tensor, storages[tensor.storage.key]) for name, tensor in tensors.items()}


def _check_header(stream: io.BytesIO, content: memoryview) -> None:
    if content[:2] == b"PK":
        raise ValueError("it is a zip archive (PyTorch 1.6 and later); only the legacy format is read")
    if unpickle(stream) != _MAGIC_NUMBER or unpickle(stream) != _PROTOCOL_VERSION:
        raise ValueError("it does not begin as a legacy-format file does")
    machine = unpickle(stream)
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise ValueError("its numbers are not little-endian")


def unpickle(stream: io.BytesIO):
    """Read the pickle at the stream's position: numbers, strings, tuples, lists, dicts and tensors.

    Names in the pickle are never looked up in Python. The names of tensors, storages and `OrderedDict` are handled
    here; all other names, and all instructions that tensors do not need, are rejected.
    """
    machine = _TensorMachine()
    try:
        for count, (instruction, argument, _) in enumerate(pickletools.genops(stream)):
            if count == MAX_INSTRUCTIONS:
                raise ValueError(f"its pickle has more than {MAX_INSTRUCTIONS} instructions")
            machine.run(instruction.name, argument)
        (value,) = machine.stack
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its pickle is damaged ({type(error).__name__}: {error})") from error
    return value


class _TensorMachine:
    """The part of the stack machine of pickle protocol 2 that a state dict needs."""

    def __init__(self):
        self.stacks = [[]]  # a mark opens a new stack
        self.memo = {}

    @property
    def stack(self) -> list:
        return self.stacks[-1]

    def run(self, instruction: str, argument) -> None:
        """Run an instruction that moves values, or pass it on to `_make`."""
        match instruction:
            case "PROTO" | "STOP":
                pass
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINUNICODE":
                self.stack.append(argument)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                self.stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[instruction])
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                self.stack.append(self.memo[argument])
            case "MARK":
                self.stacks.append([])
            case "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT":
                self.stack.append({"EMPTY_TUPLE": (), "EMPTY_LIST": [], "EMPTY_DICT": {}}[instruction])
            case "TUPLE":
                marked = self.stacks.pop()
                self.stack.append(tuple(marked))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self.stack.append(tuple(self._pop(int(instruction[-1]))))
            case _:
                self._make(instruction, argument)

    def _make(self, instruction: str, argument) -> None:
        match instruction:
            case "APPEND" | "APPENDS":
                items = self._pop(1) if instruction == "APPEND" else self.stacks.pop()
                _expect(self.stack[-1], list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self._pop(2) if instruction == "SETITEM" else self.stacks.pop()
                keys = [_expect(key, str) for key in items[::2]]
                _expect(self.stack[-1], dict).update(zip(keys, items[1::2], strict=True))
            case "GLOBAL":
                if argument not in (_ORDERED_DICT, _REBUILD_TENSOR, *_STORAGE_TYPES):
                    raise ValueError(f"its pickle asks for `{argument}`; nothing but tensors is admitted")
                self.stack.append(_Name(argument))
            case "REDUCE":
                self.stack.append(_call(*self._pop(2)))
            case "BINPERSID":
                self.stack.append(_storage(*_expect(self.stack.pop(), tuple)))
            case "BUILD":  # PyTorch's notes on the modules' versions: dropped
                self.stack.pop()
            case _:
                raise ValueError(f"its pickle holds the instruction {instruction}, which no tensor needs")

    def _pop(self, count: int) -> list:
        values = [self.stack.pop() for _ in range(count)]
        return values[::-1]


def _expect(value, kind: type):
    if type(value) is not kind:
        raise ValueError(f"its pickle is damaged: a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _call(function, arguments):
    """The two calls in a state dict: an empty `OrderedDict`, and a tensor as a view of a storage."""
    if function == _Name(_ORDERED_DICT) and arguments == ():
        return {}
    if function != _Name(_REBUILD_TENSOR):
        raise ValueError("its pickle calls something that is not a tensor")
    storage, offset, shape, strides, *_ = _expect(arguments, tuple)
    _expect(storage, _Storage)
    if not _are_sizes((offset, *_expect(shape, tuple), *_expect(strides, tuple))) or len(shape) != len(strides):
        raise ValueError("its pickle describes a tensor of an impossible shape")
    return _Tensor(storage, offset, shape, strides)


def _storage(kind, storage_type, key, location, size, view):
    if kind != "storage" or view is not None or not _are_sizes((size,)):
        raise ValueError("its pickle refers to something that is not a storage")
    return _Storage(_expect(key, str), np.dtype(_STORAGE_TYPES[_expect(storage_type, _Name).name]), size)


def _are_sizes(numbers) -> bool:
    return all(type(number) is int and 0 <= number <= MAX_FILE_BYTES for number in numbers)


def _read_storages(needed: dict, keys: list, content: memoryview, position: int) -> dict[str, np.ndarray]:
    """Read the raw numbers: for each key their count in 8 bytes, then the numbers."""
    if sorted(_expect(key, str) for key in keys) != sorted(needed):
        raise ValueError("its storages are not those that its tensors ask for")
    storages = {}
    for key in keys:
        storage = needed[key]
        size = int.from_bytes(content[position : position + 8], "little")
        start, position = position + 8, position + 8 + storage.size * storage.dtype.itemsize
        if size != storage.size or position > len(content):
            raise ValueError("it is truncated or damaged")
        storages[key] = np.frombuffer(content[start:position], storage.dtype)
    if position != len(content):
        raise ValueError("something follows its last storage")
    return storages


def _view(name: str, tensor: _Tensor, storage: np.ndarray) -> np.ndarray:
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides))
    if math.prod(tensor.shape) > storage.size or last >= storage.size or 0 in tensor.shape:
        raise ValueError(f"tensor {name!r} reaches beyond its storage")
    strides = [stride * storage.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(storage[tensor.offset :], tensor.shape, strides).copy()
