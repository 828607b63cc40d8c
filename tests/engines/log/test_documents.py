"""The documents of the event log say what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kvmodel.engines.log.schema import End, Event, Header, json_schema
from tests.engines.log.logs import incident, written

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_schema_is_current() -> None:
    assert json.loads((DOCS / "event-log.schema.json").read_text()) == json_schema()


def test_the_example_is_current() -> None:
    assert (DOCS / "examples" / "incident.events.jsonl").read_bytes() == written(incident)


def test_every_field_is_explained() -> None:
    page = (DOCS / "event-log.md").read_text()
    told = set(re.findall(r"`(\w+)`", page))
    for kind in (Header, Event, End):
        assert set(kind.__struct_fields__) <= told | {"kvmodel_log_end"}
