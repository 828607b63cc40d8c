"""Ground expressions as Python source: what makes exhaustive exploration of a small instance fast.

The only text that is ever executed is made here from a transition system's own nodes: slots, integers and the `repr`
of member names. Nothing of a spec file's text reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvmodel.errors import InternalError
from kvmodel.language.expressions import Apply, Cell, Const, Expr
from kvmodel.language.operators import Operator

__all__ = ["compile_function", "source"]


def source(expr: Expr) -> str:
    """Python source of a ground expression; a cell of the state is ``s12``, a rigid one ``q3``."""
    match expr:
        case Const(value=value):
            return repr(value)
        case Cell(slot, rigid):
            return f"q{slot}" if rigid else f"s{slot}"
        case Apply(operator, arguments):
            parts = [source(part) for part in arguments]
            match operator:
                case Operator.NOT:
                    return f"(not {parts[0]})"
                case Operator.AND:
                    return f"({' and '.join(parts)})" if parts else "True"
                case Operator.OR:
                    return f"({' or '.join(parts)})" if parts else "False"
                case Operator.IMPLIES:
                    return f"(not {parts[0]} or {parts[1]})"
                case Operator.EQ:
                    return f"({parts[0]} == {parts[1]})"
                case Operator.LT:
                    return f"({parts[0]} < {parts[1]})"
                case Operator.LE:
                    return f"({parts[0]} <= {parts[1]})"
                case Operator.ADD:
                    return f"({' + '.join(parts)})"
                case Operator.IF:
                    return f"({parts[1]} if {parts[0]} else {parts[2]})"
                case Operator.IS_NONE:
                    return f"({parts[0]} is None)"
                case Operator.THE:
                    return parts[0]
            raise InternalError(f"the dense reading has no source for operator {operator.value!r}")
    raise InternalError(f"not a ground expression: {expr!r}")


def unpack(prefix: str, length: int, of: str) -> str:
    """A statement that gives each value of the tuple `of` a local name."""
    if not length:
        return "pass"
    return f"({', '.join(f'{prefix}{slot}' for slot in range(length))},) = {of}"


def compile_function(lines: Iterable[str], name: str) -> Callable[..., Any]:
    """Compile a function from its source lines. Only called with text that this package generates."""
    namespace: dict[str, Any] = {}
    exec(compile("\n".join(lines), f"<kvmodel {name}>", "exec"), namespace)  # noqa: S102
    function: Callable[..., Any] = namespace[name]
    return function
