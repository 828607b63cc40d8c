"""Damaged logs: no crash, and no `holds` for what is no run.

    python -m tests.engines.log.damage 1000000

prints how many damaged lines were read and what became of their logs.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from random import Random

from tests.engines.log.runs import FAMILIES, Family, PlainLimit, generated, mutated, plain, random_log

__all__ = ["damaged", "judge", "sources"]

STRINGS = (
    '"\\ud800"', '"\x1b[2J"', '"' + "A" * 5_000 + '"', '"\\u202e"', '""', '"req-0"', '"decode"', '"null"', "'x'", '"' + "\\\\" * 40 + '"',
)  # fmt: skip
VALUES = (
    "NaN", "Infinity", "-1", "1e400", "9" * 4_000, "-0", "0.0", "null", "true", "[]", "{}", "[" * 5_000, '{"a":' * 2_000,
    "18446744073709551616", "9007199254740993", "1.5", "[0,0]", "[1,2,3]", *STRINGS,
)  # fmt: skip


def sources(family: Family, count: int, steps: int = 24) -> list[list[bytes]]:
    """Logs to damage."""
    return [lines for seed in range(count) if len(lines := random_log(family, seed, steps)) > 6]


def damaged(random: Random, lines: list[bytes]) -> list[bytes]:
    """The lines of a log with one of them damaged, twice, moved or gone."""
    result = list(lines)
    place = random.randrange(len(result))
    line = bytearray(result[place])
    match random.randrange(14):
        case 0:  # bytes
            for _ in range(random.randint(1, 3)):
                line[random.randrange(len(line))] = random.randrange(256)
        case 1:  # one bit
            line[random.randrange(len(line))] ^= 1 << random.randrange(8)
        case 2:  # cut or lengthened
            spot = random.randrange(len(line))
            line[spot: spot + random.randint(0, 12)] = random.choice((b"", b"\x00", b"\n", b"\r\n", b'"', b"}", b",", b"{}"))
        case 3:  # a value replaced
            text = line.decode()
            colons = [spot for spot, letter in enumerate(text) if letter == ":"]
            spot = random.choice(colons) + 1
            end = min((text.index(mark, spot) for mark in (",", "}") if mark in text[spot:]), default=len(text))
            line = bytearray((text[:spot] + random.choice(VALUES) + text[end:]).encode("utf-8", "surrogatepass"))
        case 4:  # a field twice, or one too many
            extra = f'"{random.choice(["seq", "event", "pages", "request", "first", "x", "node"])}":{random.choice(VALUES)},'
            line[line.index(b"{") + 1: line.index(b"{") + 1] = extra.encode("utf-8", "surrogatepass")
        case 5:  # the end is missing
            return [*result[:place], bytes(line[: random.randrange(len(line))])]
        case 6:  # another line of the log
            line = bytearray(random.choice(lines))
        case _:  # every line is still an event
            return mutated(random, lines)
    result[place] = bytes(line)
    return result


def judge(family: Family, lines: list[bytes]) -> str:
    """What became of a log: how the monitor ended. Raises AssertionError where it passes a log that the plain monitor does not."""
    log = b"\n".join(lines) + b"\n"
    outcome = generated(family, log)
    if not outcome.good:
        return "error" if outcome.error else "stopped" if outcome.stopped else "refused" if outcome.refused else "violated"
    try:
        expected = plain(family, [line for line in log.split(b"\n") if line])
    except PlainLimit:
        return "passed, unjudged"
    assert expected.good, log
    return "passed"


def main(count: int) -> None:
    random = Random(7)
    began = time.process_time()
    logs = [(family, lines) for family in FAMILIES.values() for lines in sources(family, 30, 14)]
    found: Counter[str] = Counter()
    for number in range(count):
        family, lines = logs[number % len(logs)]
        found[judge(family, damaged(random, lines))] += 1
        if number % 50_000 == 49_999:
            print(f"{number + 1:,} damaged lines, {time.process_time() - began:.0f} s:", json.dumps(found), flush=True)
    print(f"{count:,} damaged lines, {time.process_time() - began:.0f} s:", json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
