"""Unsigned LEB128 numbers, as sections of LLVM's hold them."""

from __future__ import annotations


def decode_uleb(data: bytes) -> list[int]:
    """Return the unsigned LEB128 numbers that `data` holds; a number cut short at the end is dropped."""
    numbers, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            numbers.append(value)
            value = shift = 0
    return numbers


def encode_uleb(value: int) -> bytes:
    """Return `value` as unsigned LEB128."""
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)
