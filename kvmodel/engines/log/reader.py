"""Reading an event log: in blocks of whole lines, in constant memory, and never past the first line that is not one.

What is read is somebody else's text. The reader says which line is wrong and why; what came before it stays good.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from kvmodel.engines.log.schema import End, Header
from kvmodel.errors import KvmodelError

__all__ = ["LogError", "LogReader"]

BLOCK = 64 * 1024
LONGEST_LINE = 1024 * 1024
BAD = (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeError, ValueError)


class LogError(KvmodelError, ValueError):
    """An event log is not one, from line `line` on."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line


class LogReader:
    """Reads a log from a binary file: `header` first, then `blocks`. `end` is the end line, once it was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rest = b""
        self._line = 1
        self.end: End | None = None

    def header(self) -> Header:
        """The first line. Raises LogError when it is not a header."""
        while b"\n" not in self._rest:
            chunk = self._file.read(BLOCK)
            if not chunk:
                break
            self._rest += chunk
            if len(self._rest) > LONGEST_LINE:
                break
        line, newline, rest = self._rest.partition(b"\n")
        if not line.strip():
            raise LogError("the log is empty" if not newline else "the first line is empty; it must be the header", 1)
        if len(line) > LONGEST_LINE:
            raise LogError("the line is too long", 1)
        try:
            header = msgspec.json.decode(line, type=Header)
        except BAD as problem:
            raise LogError(f"not the header of a kvmodel log: {_told(problem)}", 1) from None
        self._rest = rest
        self._line = 2
        return header

    def blocks(self, decoder: msgspec.json.Decoder[Any]) -> Iterator[tuple[int, list[Any]]]:
        """The events, in lists, each with the number of its first line. Raises LogError at the first bad line, after what came
        before it was given."""
        while True:
            chunk = self._file.read(BLOCK)
            data = self._rest + chunk
            cut = data.rfind(b"\n") + 1
            if not chunk:
                cut = len(data)
            elif not cut and len(data) > LONGEST_LINE:
                raise LogError("the line is too long", self._line)
            block, self._rest = data[:cut], data[cut:]
            if block:
                yield from self._events(block, decoder)
            if not chunk:
                return

    def _events(self, block: bytes, decoder: msgspec.json.Decoder[Any]) -> Iterator[tuple[int, list[Any]]]:
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        if self.end is None:
            try:
                events = decoder.decode_lines(block)
                if len(events) == lines:
                    yield self._line, events
                    self._line += lines
                    return
            except BAD:
                pass
        first, good = self._line, list[Any]()
        for line in block.split(b"\n")[:lines]:
            try:
                good.append(self._event(line, decoder))
            except _Ended:
                pass
            except LogError:
                yield first, good
                raise
            self._line += 1
        yield first, good

    def _event(self, line: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
        if self.end is not None:
            raise LogError("there is something after the end line", self._line)
        if not line.strip():
            raise LogError("the line is empty", self._line)
        if len(line) > LONGEST_LINE:
            raise LogError("the line is too long", self._line)
        try:
            return decoder.decode(line)
        except BAD as problem:
            try:
                self.end = msgspec.json.decode(line, type=End)
            except BAD:
                raise LogError(f"not an event of this spec: {_told(problem)}", self._line) from None
            raise _Ended from None


class _Ended(Exception):
    """The line was the end line."""


def _told(problem: Exception) -> str:
    return "it is nested too deeply" if isinstance(problem, RecursionError) else str(problem)
