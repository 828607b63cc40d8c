"""What people read of an inference: its outcome, and the lemmas as they can be pasted into a spec."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from kvmodel.analyses.infer import Inference
from kvmodel.language.expressions import Bound, Expr, Read, rebuild
from kvmodel.language.system import Condition
from kvmodel.language.text import expression_lines
from kvmodel.verdict import Verdict
from kvmodel.views.console import PLAIN_WIDTH, draw, indented, words

__all__ = ["inference_object", "inference_text", "lemma_source"]

STYLES = {Verdict.HOLDS: "green", Verdict.VIOLATED: "bold red", Verdict.UNDECIDED: "yellow"}
INDENT = "    "
SOURCE_WIDTH = 110


def inference_text(inference: Inference, *, width: int = PLAIN_WIDTH, colour: bool = False) -> str:
    """Everything that an inference has to say but for its trace, as text of at most `width` columns."""
    parts: list[RenderableType] = []
    names = ", ".join(inference.properties)
    line = Text.assemble(words(f"{names}: "), words(inference.verdict.value, STYLES[inference.verdict]))
    line.append_text(words(f"   {_outcome(inference)}"))
    parts.append(line)
    parts.append(indented(words(_figures(inference))))
    if inference.lemmas:
        parts.append(Text())
        said = "Lemmas, as a spec says them:" if inference.complete else "Lemmas of that moment; nothing is proved with them yet:"
        parts.append(words(said))
        parts.append(Text())
        # Lines of source are wrapped by the spec's rules, not by the width of a terminal.
        text = draw(parts, width=width, colour=colour)
        return text + lemma_source(inference.lemmas)
    return draw(parts, width=width, colour=colour)


def _outcome(inference: Inference) -> str:
    if inference.trace is not None:
        steps = len(inference.trace.steps)
        return f"{inference.violated} is violated after {steps} {'step' if steps == 1 else 'steps'} of a small instance"
    if inference.complete:
        count = len(inference.lemmas)
        found = "no lemma is needed" if not count else f"with {count} inferred {'lemma' if count == 1 else 'lemmas'}"
        return f"any size, {found}"
    return inference.reason


def _figures(inference: Inference) -> str:
    figures = [
        f"{inference.states:,} states",
        f"{inference.rows:,} rows",
        f"{inference.candidates:,} candidates",
        f"{inference.counterexamples:,} counterexamples to induction",
    ]
    if inference.conditions:
        figures.append(f"{len(inference.conditions):,} conditions proved")
    return f"{', '.join(figures)}, {inference.seconds:.1f} s"


def inference_object(inference: Inference) -> dict[str, object]:
    """An inference for JSON; each lemma with its source text."""
    return {
        "spec": inference.system,
        "method": "infer",
        "verdict": inference.verdict.value,
        "properties": list(inference.properties),
        "lemmas": [{"name": lemma.name, "source": _source(lemma, "")} for lemma in inference.lemmas],
        "candidates": inference.candidates,
        "counterexamples": inference.counterexamples,
        "states": inference.states,
        "rows": inference.rows,
        "conditions": len(inference.conditions),
        "seconds": round(inference.seconds, 3),
        "reason": inference.reason,
        "violated": inference.violated,
    }


def lemma_source(lemmas: tuple[Condition, ...], indent: str = INDENT) -> str:
    """The lemmas as members of a spec class."""
    return "\n".join(_source(lemma, indent) for lemma in lemmas)


def _source(lemma: Condition, indent: str) -> str:
    parameters = "".join(f", {_parameter(parameter)}" for parameter in lemma.parameters)
    lines = expression_lines(_spelled(lemma.condition), SOURCE_WIDTH - len(indent))
    if len(lines) == 1:
        body = [f"{INDENT}return {lines[0]}"]
    elif lines[-1] == ")" and lines[0].endswith("(") and not any(line.startswith((")", "and ", "or ")) for line in lines[1:-1]):
        body = [f"{INDENT}return {lines[0]}", *(INDENT + line for line in lines[1:])]
    else:
        body = [f"{INDENT}return (", *(INDENT * 2 + line for line in lines), f"{INDENT})"]
    text = ["@lemma", f"def {lemma.name}(s{parameters}) -> bool:", *body]
    return "".join(f"{indent}{line}\n" for line in text)


def _parameter(parameter: Bound) -> str:
    return f"{parameter.name}: {parameter.domain.name}"


def _spelled(expr: Expr) -> Expr:
    """`expr` with variables as a method of a spec reads them: ``s.holds``."""
    inner = rebuild(expr, _spelled)
    return Read(f"s.{inner.variable}", inner.index, inner.type, inner.at) if isinstance(inner, Read) else inner
