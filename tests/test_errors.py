"""What errors do with names from outside."""

from __future__ import annotations

from kvmodel.errors import nearest, printable


def test_nothing_invisible_is_shown() -> None:
    assert printable("a\x1b[2J\x00\x7f\u202eb\u2028c\rd") == "a\\x1b[2J\\x00\\x7f\\u202eb\\u2028c\\rd"
    assert printable("two\nlines, ünïcode") == "two\nlines, ünïcode"


def test_nothing_endless_is_shown() -> None:
    assert printable("x" * 20, 5) == "xxxxx..."


def test_the_nearest_name() -> None:
    assert nearest("isolated_raed", ["fresh_read", "isolated_read"]) == "; did you mean 'isolated_read'?"
    assert nearest("something", ["else"]) == ""
