"""The certificates in proofs/: what can be proved of every shipped spec and variant.

    python -m tests.specs.proofs [DIR]          proves everything again and writes proofs/ (or DIR) anew
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from kvmodel.analyses.certificates import Certificate, certificate, write_certificates
from kvmodel.language.expressions import Quantified, walk
from kvmodel.language.load import load_spec, shipped
from kvmodel.language.operators import Binder
from kvmodel.readings.induction import provable, prove

DIRECTORY = Path(__file__).resolve().parents[2] / "proofs"
SPECS = tuple(listing.name for listing in shipped())
COUNTING = tuple(
    spec
    for spec in SPECS
    if any(isinstance(node, Quantified) and node.binder is Binder.COUNT for p in load_spec(spec).declared for node in walk(p.condition))
)
"""Specs that promise an exact count, which has no meaning at any size: nothing is proved of them."""


def certified(spec: str) -> Certificate | None:
    """The certificate of what can be proved of a spec; None when nothing can. One process, so that it is the same every time."""
    proof = prove(load_spec(spec), jobs=1)
    shown = [name for name in proof.asked if proof.proved(name)]
    return certificate(proof.system, proof.conditions, shown) if shown else None


def main() -> None:
    found = []
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        for spec, made in zip(SPECS, pool.map(certified, SPECS), strict=True):
            shown, conditions = (len(made.manifest.properties), len(made.manifest.conditions)) if made is not None else (0, 0)
            print(f"{spec}: {shown} of {len(provable(load_spec(spec)))} properties, {conditions} conditions", flush=True)
            if made is not None:
                found.append(made)
    write_certificates(found, sys.argv[1] if len(sys.argv) > 1 else DIRECTORY, alone=True)


if __name__ == "__main__":
    main()
