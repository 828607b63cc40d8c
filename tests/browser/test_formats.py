"""Mermaid itself parses the diagrams, and SARIF logs are held to the standard's own schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvmodel.errors import printable
from kvmodel.language.instance import Instance
from kvmodel.traces.trace import Trace
from kvmodel.views.formats import result_as, trace_as
from kvmodel.views.markdown import sequence_diagram
from kvmodel.views.table import step_text
from tests import lending
from tests.browser.node import FOLDER, asked, require_node
from tests.hostile import NAMES, trace_of
from tests.violations import SHOWN, shortest, with_bystander

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", autouse=True)
def _node() -> None:
    require_node()


def traces() -> list[Trace]:
    own = [shortest(spec, name) for spec, name, _ in SHOWN]
    return [*own, *(with_bystander(trace, 0)[0] for trace in own), lending.trace("", "served"), lending.trace("greedy", "range:loans")]


def flat(text: str) -> str:
    return " ".join(printable(text, 120).split())


def test_mermaid_reads_every_step() -> None:
    shown = traces()
    for trace, found in zip(shown, asked("mermaid.mjs", [sequence_diagram(trace) for trace in shown]), strict=True):
        assert found.get("type") == "sequence", found
        for number, choice in enumerate(trace.steps, start=1):
            text = f"{number} {step_text(trace.instance, choice)}"
            assert any(message.startswith(text) for message in found["messages"]), text


def test_mermaid_takes_names_for_text() -> None:
    for name, found in zip(NAMES, asked("mermaid.mjs", [sequence_diagram(trace_of(name)) for name in NAMES]), strict=True):
        assert "error" not in found, (name, found)
        assert found["actors"] == [flat(name) or "\u200b", "p1"], name
        assert len(found["messages"]) == 3, name  # two steps and a note
        assert found["messages"][1].startswith(flat(f"2 {name}")[:100]), name


def test_mermaid_refuses_what_is_not_escaped() -> None:
    (found,) = asked("mermaid.mjs", ["sequenceDiagram\n  participant n0 as a\n  n0->>n0: 1 x; n0-> forged"])
    assert "error" in found


def logs() -> list[Any]:
    own = [trace_as("sarif", trace) for trace in traces()] + [trace_as("sarif", trace_of(name)) for name in NAMES]
    checks = [result_as("sarif", lending.result(v), Instance.make(lending.system(v)), "kvmodel check x") for v in ("", "careless", "stuck")]
    return [json.loads(text) for text in (*own, *checks)]


def test_sarif_keeps_to_the_schema() -> None:
    found = asked("sarif.mjs", logs())
    assert found == [[]] * len(found)


def test_a_log_that_does_not_is_noticed() -> None:
    log = json.loads(trace_as("sarif", shortest()))
    log["runs"][0]["results"][0]["level"] = "dreadful"
    del log["runs"][0]["tool"]
    (found,) = asked("sarif.mjs", [log])
    assert any("tool" in problem for problem in found)
    assert any("level" in problem for problem in found)


def test_the_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (FOLDER / "package-lock.json").read_text()
