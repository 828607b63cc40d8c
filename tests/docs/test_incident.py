"""docs/incident.html and the README's picture are what `make report` would write now."""

from __future__ import annotations

import kvmodel
from kvmodel.views.picture import picture
from kvmodel.views.report import report_html
from tests.docs.incident import PAGE, PICTURE, PROPERTY, SPEC, STEP


def test_the_page_is_current() -> None:
    result = kvmodel.check(SPEC)
    trace = result[PROPERTY].trace
    assert trace is not None
    # not `==` on the texts: pytest would take minutes to show how two long pages differ
    same = PAGE.read_text(encoding="utf-8") == report_html(trace, result)
    assert same, "docs/incident.html is not current; `make report` writes it again"
    drawn = PICTURE.read_text(encoding="utf-8") == picture(trace, STEP)
    assert drawn, "docs/images/incident.svg is not current; `make report` writes it again"
