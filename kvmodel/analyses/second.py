"""A second opinion on a whole proof: which properties hold at any size by enumeration alone, and how tight the claims are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvmodel.language.instance import Instance
from kvmodel.readings.conditions import Induction
from kvmodel.readings.cutoff import Judgement, SecondOpinion, missing, second_opinion
from kvmodel.readings.induction import Proof
from kvmodel.readings.tightness import Tightness, tightness

__all__ = ["SecondOpinions", "second_opinions"]

PATIENCE = 10.0  # seconds for the exploration that tightness compares with


@dataclass(frozen=True)
class SecondOpinions:
    """`opinions` on the conditions of a proof; for each property that is proved, the conditions that the opinions `lack` for
    a proof that trusts no solver (none: it has one). `tightness` is of the smallest instance."""

    opinions: tuple[SecondOpinion, ...]
    lack: tuple[tuple[str, tuple[str, ...]], ...]
    tightness: Tightness | None

    @property
    def disagreed(self) -> tuple[str, ...]:
        """Conditions that a state breaks although they were proved."""
        return tuple(opinion.name for opinion in self.opinions if opinion.judgement is Judgement.DISAGREED)


def second_opinions(proof: Proof, *, progress: Callable[[str], None] | None = None) -> SecondOpinions:
    """Look at every condition of `proof` again by enumeration, with the claims that its proof used as a hint. Ctrl-C ends it
    early, and keeps the opinions reached so far."""
    induction = Induction(proof.system, all_flags=proof.all_flags)
    opinions = second_opinion(induction, ((r.step, r.claim, r.used) for r in proof.conditions), progress=progress)
    lack = tuple((name, missing(induction, opinions, [name])) for name in proof.asked if proof.proved(name))
    found = None
    if len(opinions) == len(proof.conditions) and proof.claims and not proof.all_flags:
        smallest = Instance.make(proof.system, {sort.name: 1 for sort in proof.system.sorts})
        claims = [name for name in proof.claims if not induction.claims[name].derived]
        found = tightness(smallest, claims, timeout=PATIENCE, progress=progress)
    return SecondOpinions(opinions, lack, found)
