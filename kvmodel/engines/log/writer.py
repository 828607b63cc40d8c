"""Writing an event log: what recorders of engines use.

A `LogWriter` must never disturb the engine that it watches: `event` does not raise for what the disk does, holds a bounded
buffer, and stops for good at the first failure. The end line, or its absence, then says that the log is not complete.

>>> from io import BytesIO
>>> file = BytesIO()
>>> with LogWriter(file, Header(1, {"prefill": 64, "decode": 128}, engine="sglang"), clock=lambda: 12.5) as log:
...     log.event("allocate", node="decode", request="r1", pages=[3, 4])
>>> print(file.getvalue().decode(), end="")
{"kvmodel_log":1,"pools":{"prefill":64,"decode":128},"engine":"sglang"}
{"event":"allocate","seq":1,"ts":12.5,"node":"decode","request":"r1","pages":[3,4]}
{"kvmodel_log_end":1}
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from types import TracebackType
from typing import BinaryIO

import msgspec

from kvmodel.engines.log.schema import End, Header, Rigid

__all__ = ["LogWriter"]

BUFFER = 256 * 1024  # bytes that are held before they are written


class LogWriter:
    """Writes events to `file` (binary, unbuffered or not), after `header`. Safe to use from several threads.

    `stopped` is '' or why nothing is written any more; `lost` counts the events since. Close it, or use it as a context
    manager: what is in the buffer is written then, and the end line. `file` itself is left open.
    """

    def __init__(
        self, file: BinaryIO, header: Header, *, buffer: int = BUFFER, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stopped = ""
        self.lost = 0
        self.written = 0
        self._file = file
        self._limit = buffer
        self._clock = clock
        self._encode = msgspec.json.Encoder().encode
        self._lock = Lock()
        self._closed = False
        self._held = 0
        self._buffer = bytearray(msgspec.json.encode(header) + b"\n")
        self._seq = 0

    def event(
        self,
        action: str,
        *,
        node: str = "",
        request: str | None = None,
        pages: Sequence[int] = (),
        values: Mapping[str, Rigid] | None = None,
        **named: int | str | Sequence[int],
    ) -> None:
        """Note that `action` of the spec happened; `named` are its other parameters by name (``first=3``), or ``pool``.

        Raises TypeError for values that JSON does not have: that is a mistake of the recorder, not of the disk.
        """
        line: dict[str, object] = {"event": action, "seq": 0, "ts": 0.0}
        if node:
            line["node"] = node
        if request is not None:
            line["request"] = request
        if pages:
            line["pages"] = pages
        if values:
            line["values"] = values
        if named:
            line.update(named)
        with self._lock:
            if self.stopped or self._closed:
                self.lost += 1
                return
            line["seq"] = self._seq + 1
            line["ts"] = self._clock()
            text = self._encode(line)
            self._buffer += text
            self._buffer += b"\n"
            self._seq += 1
            self._held += 1
            if len(self._buffer) > self._limit:
                self._flush()

    @property
    def noted(self) -> int:
        """How many events were noted, written or not yet."""
        return self._seq

    def flush(self) -> None:
        """Hand what is held to the file."""
        with self._lock:
            if not self._closed:
                self._flush()

    def close(self) -> None:
        """Write what is held, and the end line. Further events are lost."""
        with self._lock:
            if self._closed:
                return
            self._flush()
            self._closed = True
            self._write(msgspec.json.encode(End(self.written, self.lost, self.stopped)) + b"\n")

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _flush(self) -> None:
        if self.stopped or not self._buffer:
            return
        if self._write(self._buffer):
            self.written += self._held
        else:
            self.lost += self._held
        self._buffer = bytearray()
        self._held = 0

    def _write(self, content: bytes | bytearray) -> bool:
        """Whether all of `content` was written. After a failure the file is cut back to where it was, if that is possible."""
        place = self._place()
        try:
            view = memoryview(content)
            while view:  # a raw file may take less than it is given
                view = view[self._file.write(view):]
            self._file.flush()
        except (OSError, ValueError) as problem:
            self.stopped = self.stopped or _reason(problem)
            self._cut(place)
            return False
        return True

    def _place(self) -> int | None:
        try:
            return self._file.tell() if self._file.seekable() else None
        except (OSError, ValueError):
            return None

    def _cut(self, place: int | None) -> None:
        if place is None:
            return
        try:
            self._file.seek(place)
            self._file.truncate()
        except (OSError, ValueError):
            pass


def _reason(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or str(problem)
