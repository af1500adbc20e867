"""Plain values as bytes, and the pipe that carries them between judge and program.

    frame = length (4 bytes), value
    value = tag (1 byte), then by tag:
        N T F               None, True, False
        i s b q             integer, text, bytes, Decimal: length, bytes
        f c                 float, complex: 8 or 16 bytes
        l t e z d           list, tuple, set, frozenset, dict: number of parts, the parts
        r                   Fraction: its two integers
        o                   an object that stays with the program: its number
        y                   a built-in type: length, name

Both directions are loops, not recursions, and know how deep and how long a value may be. What comes
out of `decode` is made of exact built-in types, whatever the sender did: no subclass, no `__eq__`
of the program's ever reaches the judge.
"""

from __future__ import annotations

import builtins
import os
import struct

TYPE_CHECKING = False  # importing `typing` would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MOST = 16 << 20  # bytes of a frame
DEEPEST = 100
CONTAINERS = {list: b"l", tuple: b"t", set: b"e", frozenset: b"z", dict: b"d"}
BUILD = {b"l": list, b"t": tuple, b"e": set, b"z": frozenset}
NAMED = b"isbqy"  # tags that carry a length and that many bytes
TYPES = {name: t for name, t in vars(builtins).items() if isinstance(t, type)}


class Unsendable(Exception):
    """Too deep, too long, or not a plain value."""


class Closed(Exception):
    """The other side is gone."""


def scalar(value: Any) -> bytes | None:
    """The bytes of a value without parts, or None."""
    kind = type(value)
    if value is None:
        return b"N"
    if kind is bool:
        return b"T" if value else b"F"
    if kind is float:
        return b"f" + struct.pack("<d", value)
    if kind is complex:
        return b"c" + struct.pack("<dd", value.real, value.imag)
    if kind is int:
        return named(b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    if kind is str:
        return named(b"s", value.encode("utf-8", "surrogatepass"))
    if kind is bytes:
        return named(b"b", value)
    if kind is type and TYPES.get(value.__name__) is value:
        return named(b"y", value.__name__.encode())
    return None


def named(tag: bytes, content: bytes) -> bytes:
    return tag + struct.pack("<I", len(content)) + content


def encode(value: object, other: Callable[[Any], Any]) -> bytes:
    """The bytes of a value; `other` gives bytes or a plainer value for what is not plain."""
    out = bytearray()
    stack: list[Iterator[Any]] = [iter((value,))]
    while stack:
        for part in stack[-1]:
            data = scalar(part)
            if data is None and type(part) not in CONTAINERS:
                data = other(part)
                if not isinstance(data, bytes):
                    part, data = data, scalar(data)
            if data is None:
                pairs = type(part) is dict
                out += CONTAINERS[type(part)] + struct.pack("<I", len(part))
                parts = [x for pair in part.items() for x in pair] if pairs else part
                stack.append(iter(parts))
            else:
                out += data
            if len(out) > MOST or len(stack) > DEEPEST:
                raise Unsendable("a value that is too deep or too large")
            if data is None:
                break  # into the container
        else:
            stack.pop()
    return bytes(out)


def decode(data: bytes, objects: Callable[[int], object]) -> Any:
    """The value of some bytes; `objects` gives what a number stands for."""
    at = 0
    stack: list[tuple[bytes, int, list[Any]]] = []
    while True:
        tag, at = data[at : at + 1], at + 1
        if tag in b"NTF" and tag:
            value = {b"N": None, b"T": True, b"F": False}[tag]
        elif tag == b"f" or tag == b"c":
            end = at + (8 if tag == b"f" else 16)
            parts = struct.unpack("<d" if tag == b"f" else "<dd", data[at:end])
            value, at = (parts[0] if tag == b"f" else complex(*parts)), end
        else:
            (count,), at = struct.unpack("<I", data[at : at + 4]), at + 4
            if tag == b"o":
                value = objects(count)
            elif count > len(data) - at:
                raise Unsendable("a value that is cut off")
            elif tag and tag in NAMED:
                value, at = _named(tag, data[at : at + count]), at + count
            elif tag in BUILD or tag == b"d" or tag == b"r":
                stack.append((tag, count * (2 if tag == b"d" else 1), []))
                if len(stack) > DEEPEST:
                    raise Unsendable("a value that is too deep")
                value = stack
            else:
                raise Unsendable("bytes that are no value")
        while True:  # hand the value to its container; full ones become values themselves
            if value is not stack:
                if not stack:
                    if at != len(data):
                        raise Unsendable("more than one value")
                    return value
                stack[-1][2].append(value)
            tag, count, parts = stack[-1]
            if len(parts) < count:
                break
            stack.pop()
            value = _built(tag, parts)


def _named(tag: bytes, content: bytes) -> object:
    if tag == b"i":
        return int.from_bytes(content, "little", signed=True)
    if tag == b"b":
        return content
    text = content.decode("utf-8", "surrogatepass")
    if tag == b"s":
        return text
    if tag == b"q":
        return __import__("decimal").Decimal(text)
    if tag == b"y" and text in TYPES:
        return TYPES[text]
    raise Unsendable("a name that is not known")


def _built(tag: bytes, parts: list[Any]) -> object:
    if tag == b"d":
        return dict(zip(parts[::2], parts[1::2], strict=True))
    if tag == b"r":
        top, bottom = parts
        if type(top) is not int or type(bottom) is not int:
            raise Unsendable("a fraction that is none")
        return __import__("fractions").Fraction(top, bottom)
    return BUILD[tag](parts)


class Pipe:
    """Frames over two file descriptors."""

    def __init__(self, read: int, write: int) -> None:
        self.read, self.write = read, write

    def send(self, frame: bytes) -> None:
        data = memoryview(struct.pack("<I", len(frame)) + frame)
        try:
            while data:
                data = data[os.write(self.write, data) :]
        except OSError:
            raise Closed from None

    def receive(self) -> bytes:
        (length,) = struct.unpack("<I", self._exactly(4))
        if length > MOST:
            raise Unsendable("a value that is too large")
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            try:
                chunk = os.read(self.read, min(1 << 16, length - len(data)))
            except OSError:
                chunk = b""
            if not chunk:
                raise Closed
            data += chunk
        return bytes(data)


def store(record: dict[str, Any]) -> int:
    """A file in memory that holds one frame."""
    handle = os.memfd_create("goldimask")
    Pipe(-1, handle).send(encode(record, repr))
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def load(handle: int) -> dict[str, Any]:
    return decode(Pipe(handle, -1).receive(), repr)
