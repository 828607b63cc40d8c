"""The writer: what it writes is read back, and nothing that a disk does reaches the engine."""

from __future__ import annotations

import json
from io import BytesIO, RawIOBase
from pathlib import Path
from threading import Thread

import pytest

from kvmodel.engines.log.schema import Header
from kvmodel.engines.log.writer import LogWriter

HEADER = Header(1, {"gpu": 4})


class Full(BytesIO):
    """A disk with room for `room` bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def write(self, data: object) -> int:
        taken = bytes(data)[: max(0, self.room - self.tell())]  # type: ignore[call-overload]
        super().write(taken)
        if len(taken) < len(bytes(data)):  # type: ignore[call-overload]
            raise OSError(28, "No space left on device")
        return len(taken)


def test_a_full_disk() -> None:
    file = Full(1_000)
    log = LogWriter(file, HEADER, buffer=200)
    for number in range(100):
        log.event("allocate", request="r", pages=[number])
    log.close()
    assert log.stopped == "No space left on device"
    assert log.written + log.lost == 100
    assert log.lost
    lines = file.getvalue().splitlines()
    assert file.getvalue().endswith(b"\n")  # cut back to whole lines
    events = [json.loads(line) for line in lines[1:] if b"event" in line]
    assert [event["seq"] for event in events] == list(range(1, log.written + 1))


def test_the_end_line_tells_of_loss_once_there_is_room() -> None:
    file = Full(1_000)
    log = LogWriter(file, HEADER, buffer=200)
    for number in range(100):
        log.event("allocate", request="r", pages=[number])
    file.room = 100_000
    log.close()
    end = json.loads(file.getvalue().splitlines()[-1])
    assert end == {"kvmodel_log_end": log.written, "lost": log.lost, "reason": "No space left on device"}


def test_a_file_that_was_closed(tmp_path: Path) -> None:
    file = (tmp_path / "log").open("wb", buffering=0)
    log = LogWriter(file, HEADER)
    file.close()
    log.event("reset")
    log.close()
    log.event("reset")
    assert log.stopped
    assert log.lost == 2


def test_a_raw_file_that_takes_little_at_a_time() -> None:
    class Slow(RawIOBase):
        content = b""

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            taken = bytes(data)[:7]  # type: ignore[call-overload]
            self.content += taken
            return len(taken)

    file = Slow()
    log = LogWriter(file, HEADER)  # type: ignore[arg-type]
    log.event("reset")
    log.flush()
    assert [json.loads(line).get("event") for line in file.content.splitlines()] == [None, "reset"]


def test_a_value_that_json_does_not_have_is_the_recorders_mistake() -> None:
    log = LogWriter(BytesIO(), HEADER)
    with pytest.raises(TypeError):
        log.event("reset", request=object())  # type: ignore[arg-type]
    log.event("reset")
    log.close()
    assert (log.written, log.lost) == (1, 0)


def test_several_threads() -> None:
    file = BytesIO()
    log = LogWriter(file, HEADER, buffer=500)

    def write() -> None:
        for _ in range(500):
            log.event("reset")

    threads = [Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    events = [json.loads(line) for line in file.getvalue().splitlines()[1:-1]]
    assert [event["seq"] for event in events] == list(range(1, 2_001))
