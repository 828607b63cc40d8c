"""docs/engines/measured.md is what was measured, and what was measured is what reports and release notes say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvmodel.engines.machines import machines
from tests.engines.releases import MEASURED, PAGE, RELEASES, page

VLLM, SGLANG = RELEASES["vllm"], RELEASES["sglang"]

# Which releases violate which property; the sources are in the docstrings of the spec variants and in docs/engines.
RED = {
    ("vllm", "hybrid", "exclusive_owner"): ("0.16.0", "0.20.2"),  # PR 44409
    ("vllm", "scheduler", "isolated_write"): ("0.11.2", "0.13.0"),  # PR 32255
    ("vllm", "nixl", "isolated_write"): ("0.11.2", "0.13.0"),
    ("vllm", "scheduler-two-batches", "isolated_write"): ("0.11.2", "0.13.0", "0.16.0", "0.20.2"),
    ("vllm", "nixl-two-batches", "isolated_write"): ("0.11.2", "0.13.0", "0.16.0", "0.20.2"),
    ("vllm", "leases", "isolated_read"): VLLM,  # by design
    ("sglang", "handoff", "fresh_read"): ("0.5.11", "0.5.16", "0.5.17", "0.5.18", "0.5.19"),  # the incident
    ("sglang", "handoff", "isolated_write"): ("0.5.20",),  # where there is no incident to find, this machine finds the late write
    ("sglang", "late-write", "isolated_write"): ("0.5.11", "0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20"),
    ("sglang", "truncating", "fresh_read"): SGLANG,
    ("sglang", "deadline", "isolated_write"): SGLANG,  # up to 0.5.20 without a deadline
}


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(MEASURED.read_text())
    return content


def test_every_machine_was_driven_on_every_release(measured: dict[str, Any]) -> None:
    found = {(each["engine"], each["release"], each["machine"]) for each in measured["cells"]}
    assert found == {(engine, release, m.name) for engine, releases in RELEASES.items() for release in releases for m in machines(engine)}


def test_what_is_red_is_what_is_known(measured: dict[str, Any]) -> None:
    found: dict[tuple[str, str, str], list[str]] = {}
    for each in measured["cells"]:
        if each["verdict"] == "violated":
            known = [name for name in each["violated"] if (each["engine"], each["machine"], name) in RED]
            assert known, each
            found.setdefault((each["engine"], each["machine"], known[0]), []).append(each["release"])
        else:
            assert (each["verdict"], each["undecided"]) == ("holds", {}), each
    assert {place: tuple(releases) for place, releases in found.items()} == RED


def test_the_page_is_made_of_it(measured: dict[str, Any]) -> None:
    assert PAGE.read_text() == page(**measured)
