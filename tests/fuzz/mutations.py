"""Ways to spoil bytes, texts and trees of values, all drawn from a `random.Random`."""

import copy
import io
import json
import re
import struct
import zlib

_EDGES = (0, 1, 2, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_SEPARATORS = ((b",", b";"), (b'"', b""), (b"\t", b" "), (b":", b"="))
# Where encodings, tokenizers, terminals and parsers stumble.
_ODD_TEXTS = (
    "",
    "\0",
    "\ufeff",
    "\u202e",
    "\u2028",
    "\uffff",
    "\U0010ffff",
    "e" + "\u0301" * 40,
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "\ud800",
    "\x1b[2J",
    "\r",
    "\n\n\n",
    "\t",
    '"',
    "'",
    ",",
    "<unk>",
    "<pad> <start> <end>",
    "￭",
    "NaN",
    "-1e999",
    "../../etc/passwd",
    "{" * 50,
    "[" * 3000,
    "word " * 500,
    "x" * 5000,
    "。" * 300,
    ". " * 300,
    "İ",
    "ß",
    "ﬁ",
)
_ODD_VALUES = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    7,
    64,
    8192,
    2**31,
    2**63,
    -(2**40),
    0.0,
    0.5,
    1.0,
    -0.1,
    1e-30,
    1e30,
    float("nan"),
    float("inf"),
    "",
    "none",
    "additive",
    "encoder/*",
    "\0",
    [],
    {},
    [1, 2, 3],
    ["a", None],
    {"a": {"b": 1}},
    [[[]]],
)


def mutate_bytes(data, chance):
    """Bytes after one to four changes, most of them small."""
    for _ in range(chance.choice((1, 1, 1, 2, 2, 4))):
        data = chance.choice(_BYTE_CHANGES)(bytearray(data), chance)
    return bytes(data)


def mutate_png(data, chance):
    """A PNG file with its chunks changed and their checksums right, so that the decoder looks further."""
    chunks = _png_chunks(data)
    for _ in range(chance.choice((1, 1, 2))):
        if not chunks:
            break
        place = chance.randrange(len(chunks))
        change = chance.randrange(5)
        if change == 0:
            del chunks[place]
        elif change == 1:
            chunks.insert(chance.randrange(len(chunks) + 1), chunks[place])
        elif change == 2:  # a size behind another chunk
            chunks[:1] = [(b"vpAg", chunks[0][1]), (b"IHDR", struct.pack(">II", 20_000, 30_000) + chunks[0][1][8:])]
        else:
            name, content = chunks[place]
            chunks[place] = (name, mutate_bytes(content, chance))
    return _PNG_MAGIC + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def mutate_tiff(data, chance):
    """A TIFF file with other numbers in its tags: sides, strips that share their bytes, sides of tiles."""
    data = bytearray(data)
    order = "<" if data.startswith(b"II") else ">"
    (directory,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, directory)
    for _ in range(chance.choice((1, 2, 3))):
        place = directory + 2 + 12 * chance.randrange(count)
        tag, kind, values, value = struct.unpack_from(f"{order}HHII", data, place)
        if tag in (273, 279) and chance.random() < 0.7:  # offsets and sizes of strips
            values, value = chance.choice((40, 4000, 50_000)), len(data)
            data += struct.pack(f"{order}{values}I", *(8 + number for number in range(values)))
            kind = 4
        elif chance.random() < 0.3:
            tag, kind, values, value = chance.choice((322, 323, 278)), 4, 1, chance.choice((1, 16, 30_000, 2**31))
        else:
            value = chance.choice((1, 2, 8, 255, 3000, 9000, 65535, 2**31 - 1))
        struct.pack_into(f"{order}HHII", data, place, tag, kind, values, value)
    return bytes(data)


def many_sentences(chance):
    """A text of very many short sentences, and perhaps a long one."""
    long = "word " * chance.choice((0, 10, 200, 3000))
    return f"{long}. " + chance.choice(("Ab. ", "a b! ", "He is. ", "。")) * chance.choice((20, 500, 4000, 30_000))


def repeat_scans(data, chance):
    """A progressive JPEG with one of its scans many times over, and now and then the size of a large photo."""
    starts = [match.start() for match in re.finditer(b"\xff\xda", data)]
    place = chance.choice((-1, -1, -1, chance.randrange(len(starts))))
    end = [*starts, len(data) - 2][starts.index(starts[place]) + 1]
    scan = (
        chance.choice((b"", b"", b"\xff" * 9, b"\xff\xfe\x00\x04ok", b"\xff\xdd\x00\x04\x00\x01"))
        + data[starts[place] : end]
    )
    count = chance.choice((1, 80, 95, 200, 6000))
    data = bytearray(data[:end] + scan * count + data[end:])
    if chance.random() < 0.5 and count > 100:
        start = data.index(b"\xff\xc2") + 5
        data[start : start + 4] = struct.pack(">HH", chance.choice((8000, 20_000)), chance.choice((9000, 30_000)))
        return bytes(data)
    return bytes(data) if chance.random() < 0.7 else mutate_bytes(data, chance)


def many_marks(chance):
    """A text of few words and very many tokens, which is its own summary."""
    marks = ("'", '"', ".", "!? ", "\u2019", "- ", "(", "。", "\u0301", "a.", "1,", "￭", "\n")
    text = chance.choice(marks) * chance.choice((300, 5000, 100_000))
    if chance.random() < 0.3:
        text += chance.choice(marks) * chance.choice((7, 300))
    return chance.choice(("", "word ")) + text + chance.choice(("", " word", "\n"))


def lengthen(data, chance):
    """A text file with one of its lines or words very long, or with very many lines."""
    lines = data.split(b"\n")
    place, count = chance.randrange(len(lines)), chance.choice((1000, 30_000, 300_000))
    change = chance.randrange(4)
    if change == 0:
        lines[place] = b" ".join([lines[place].split(b" ")[0] or b"1"] * count)
    elif change == 1:
        lines[place] += chance.choice((b"x", b"\xc3\xa9", b"1", b"'", b"{", b"\x1b")) * count
    elif change == 2:
        lines[place:place] = [b"%s%d" % (lines[place], number) for number in range(count // 100)]
    else:
        lines = [b"\t".join(lines * 20)]
    return b"\n".join(lines)


def mutate_text(text, chance):
    """A text after one to four changes of words, letters and lines; it may hold half of a surrogate pair."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        words = text.split(" ")
        place = chance.randrange(len(words))
        change = chance.randrange(8)
        if change == 0:
            words[place] = chance.choice(_ODD_TEXTS)
        elif change == 1:
            words.insert(place, chance.choice(_ODD_TEXTS))
        elif change == 2:
            del words[place:]
        elif change == 3:
            words = words[place:] + words[:place]
        elif change == 4:
            words *= chance.choice((2, 3, 20))
        elif change == 5:
            chance.shuffle(words)
        elif change == 6:
            words[place] = "".join(chr(chance.choice((chance.randrange(128), chance.randrange(0xD7FF)))) for _ in "ab")
        else:
            words[place] = words[place][::-1].upper()
        text = chance.choice((" ", " ", " ", "\n", "", "\u3000")).join(words)
    return text


def mutate_tree(tree, chance):
    """A tree of dicts, lists and plain values with one to three of its branches changed."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = list(_branches(tree))
        if not places:
            return chance.choice(_ODD_VALUES)
        parent, key = chance.choice(places)
        change = chance.randrange(6)
        if change == 0:
            del parent[key]
        elif change == 1 and isinstance(parent, dict):
            parent[mutate_text(str(key), chance)] = parent.pop(key)
        elif change == 2:
            other, other_key = chance.choice(places)
            parent[key] = copy.deepcopy(other[other_key])
        else:
            parent[key] = copy.deepcopy(_near(parent[key], chance))
    return tree


def mutate_lines(data, chance):
    """The bytes of a text file with lines changed, left out, doubled or joined, as an editor or a spreadsheet might."""
    lines = data.split(b"\n")
    for _ in range(chance.choice((1, 1, 2, 3))):
        place = chance.randrange(len(lines))
        change = chance.randrange(6)
        if change == 0 and len(lines) > 1:
            del lines[place]
        elif change == 1:
            lines.insert(place, lines[chance.randrange(len(lines))])
        elif change == 2:
            lines[place] = mutate_bytes(lines[place], chance)
        elif change == 3:
            fields = mutate_text(lines[place].decode("utf-8", "replace"), chance)
            lines[place] = fields.encode("utf-8", "surrogatepass")
        elif change == 4:
            lines[place] = lines[place].replace(*chance.choice(_SEPARATORS))
        else:
            lines[place] += b"\r"
    encoding = chance.choice(("utf-8",) * 9 + ("utf-16", "utf-8-sig", "latin-1"))
    whole = b"\n".join(lines)
    return whole if encoding == "utf-8" else whole.decode("utf-8", "replace").encode(encoding, "replace")


def to_json(tree):
    """JSON of a mutated tree; NaN and infinities as Python writes them."""
    return json.dumps(tree).encode()


def to_toml(tree):
    """TOML of a mutated tree of dicts and lists; what TOML has no word for comes out as it may."""
    out = io.StringIO()
    for key, value in tree.items() if isinstance(tree, dict) else {"value": tree}.items():
        out.write(f"{json.dumps(str(key))} = {_toml_value(value)}\n")
    return out.getvalue().encode("utf-8", "surrogatepass")


def _flip_bits(data, chance):
    for _ in range(chance.choice((1, 1, 3, 16))):
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def _set_bytes(data, chance):
    for _ in range(chance.choice((1, 2, 8))):
        if data:
            data[chance.randrange(len(data))] = chance.choice((0, 1, 10, 32, 34, 44, 127, 128, 254, 255))
    return data


def _set_number(data, chance):
    """Sizes and counts mostly stand at the beginning."""
    width, order = chance.choice((1, 2, 4, 4, 8)), chance.choice(("little", "big"))
    number = (chance.choice(_EDGES) % 2 ** (8 * width)).to_bytes(width, order)
    start = chance.randrange(max(1, min(len(data), chance.choice((64, 64, 1 << 30)))))
    data[start : start + width] = number
    return data


def _truncate(data, chance):
    return data[: chance.randrange(len(data) + 1)]


def _cut_out(data, chance):
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    del data[start : min(end, start + chance.choice((1, 4, 100, 1 << 30)))]
    return data


def _insert(data, chance):
    start = chance.randrange(len(data) + 1)
    data[start:start] = chance.randbytes(chance.choice((1, 2, 4, 100)))
    return data


def _repeat(data, chance):
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    data[start:start] = data[start : min(end, start + 1000)] * chance.choice((1, 2, 5))
    return data


def _swap(data, chance):
    first, second, third = sorted(chance.randrange(len(data) + 1) for _ in range(3))
    return data[:first] + data[second:third] + data[first:second] + data[third:]


def _blank_out(data, chance):
    start = chance.randrange(len(data) + 1)
    end = min(len(data), start + chance.choice((4, 64, 1024)))
    data[start:end] = bytes([chance.choice((0, 255))]) * (end - start)
    return data


_BYTE_CHANGES = (
    _flip_bits,
    _flip_bits,
    _set_bytes,
    _set_number,
    _set_number,
    _truncate,
    _cut_out,
    _insert,
    _repeat,
    _swap,
    _blank_out,
)


def _png_chunks(data):
    chunks, place = [], len(_PNG_MAGIC)
    while place + 12 <= len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        chunks.append((data[place + 4 : place + 8], data[place + 8 : place + 8 + length]))
        place += 12 + length
    return chunks


def _branches(tree):
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _branches(tree[key])


def _near(value, chance):
    """An odd value, or one of the same kind."""
    if chance.random() < 0.5:
        return chance.choice(_ODD_VALUES)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return chance.choice((value + 1, value - 1, -value, value * 2, value / 2, str(value)))
    if isinstance(value, str):
        return mutate_text(value, chance)
    if isinstance(value, list):
        return chance.choice((value * 2, value[:1], [value]))
    return chance.choice(([value], str(value), list(value or ())))


def _toml_value(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps("none" if value is None else value, ensure_ascii=False)
