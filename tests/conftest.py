"""What tests have to say at the end of a run, also when several processes run them."""

from __future__ import annotations

from _pytest.terminal import TerminalReporter


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print what tests recorded with ``record_property("summary", text)``."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    for report in reports:
        for name, text in getattr(report, "user_properties", ()):
            if name == "summary":
                terminalreporter.write_line(str(text))
