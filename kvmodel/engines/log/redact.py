"""Redaction: ids and hashes of a log as keyed digests, so that what is shown can be passed on.

A digest is the same wherever the name is the same, and cannot be turned back without the key: a random one for each run, or
the user's own where several runs are to be compared.
"""

from __future__ import annotations

import re
import secrets
from hashlib import blake2b

from kvmodel.errors import printable

__all__ = ["Redaction"]

QUOTED = re.compile(r"'[^']*'|`[^`]*`|\"[^\"]*\"")
LONGEST = 60


class Redaction:
    """How names of a log are shown: escaped and short, or with `on` as digests under `key`."""

    def __init__(self, on: bool = False, key: bytes = b"") -> None:
        self.on = on
        self._key = (blake2b(key, digest_size=32).digest() if key else secrets.token_bytes(32)) if on else b""

    def name(self, name: str) -> str:
        """An id as it may be shown."""
        if not self.on:
            return printable(name, LONGEST).replace("\n", "\\n")
        return "#" + blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=5).hexdigest()

    def text(self, text: str) -> str:
        """A sentence as it may be shown: what it quotes may be from the log."""
        return QUOTED.sub("(redacted)", text) if self.on else text
