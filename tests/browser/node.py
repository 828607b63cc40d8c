"""Runs the scripts of this folder with node; what they need is installed from the lock file when it is not there."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent
INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")

__all__ = ["FOLDER", "asked", "require_node"]


def require_node() -> None:
    """Fails where there is no node; installs once, and again when the lock file is newer."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.fail("node and npm are not installed: the browser tests need them")
    installed, lock = FOLDER / "node_modules" / ".package-lock.json", FOLDER / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        subprocess.run(INSTALL, cwd=FOLDER, check=True, capture_output=True, timeout=600)


def asked(script: str, values: object) -> Any:
    """What a script of this folder says of a JSON value."""
    text = json.dumps(values, ensure_ascii=True)
    done = subprocess.run(["node", script], cwd=FOLDER, input=text, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
