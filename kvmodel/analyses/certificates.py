"""Certificates: proofs for any size as files that somebody else can check.

A certificate is a manifest (JSON) and one SMT-LIB 2 file for each verification condition, in ``conditions/`` beside it and
named by its content, so that variants share what they have in common. `recheck` is the other half.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from kvmodel.analyses.smtlib import Printer, z3_name
from kvmodel.errors import KvmodelError, printable
from kvmodel.language.system import TransitionSystem
from kvmodel.language.text import expression, signature, system_text
from kvmodel.readings.conditions import Claim, Induction
from kvmodel.readings.solver import Answer, ConditionResult

__all__ = [
    "Certificate",
    "CertificateError",
    "ClaimEntry",
    "ConditionEntry",
    "Manifest",
    "bounded",
    "certificate",
    "claim_entry",
    "file_name",
    "manifest_bytes",
    "manifest_name",
    "read_manifests",
    "system_hash",
    "write_certificates",
]

SCHEMA = 1
LARGEST_MANIFEST = 4_000_000  # bytes
MOST_MANIFESTS = 500
FOLDER = "conditions"

Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Names: TypeAlias = Annotated[tuple[Name, ...], msgspec.Meta(max_length=1_000)]
File: TypeAlias = Annotated[str, msgspec.Meta(pattern=rf"^{FOLDER}/[0-9a-f]{{20}}\.smt2\Z")]


class CertificateError(KvmodelError, ValueError):
    """A directory or a manifest is not readable, or is not of the format that it claims."""


class ClaimEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim of the inductive set; `condition` is its text, for people."""

    name: Name
    lemma: bool
    condition: Annotated[str, msgspec.Meta(max_length=20_000)]


class ConditionEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition, the claims that its proof used, and its file."""

    step: Name
    claim: Name
    uses: Names
    file: File


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a certificate says: for this system and these flags (none: for every assignment), the properties hold, because the
    claims are inductive, because the conditions hold. `solver` is the one that proved them."""

    schema: int
    spec: Name
    system: Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
    flags: dict[Name, bool] | None
    properties: Names
    claims: Annotated[tuple[ClaimEntry, ...], msgspec.Meta(max_length=1_000)]
    conditions: Annotated[tuple[ConditionEntry, ...], msgspec.Meta(max_length=20_000)]
    solver: Name


@dataclass(frozen=True)
class Certificate:
    """A manifest, and the text of each file that it names."""

    manifest: Manifest
    files: Mapping[str, str]


def system_hash(system: TransitionSystem) -> str:
    """The hash of what a system means with its flags: of its text without documentation and without its name."""
    text = system_text(system, docs=False).partition("\n")[2]
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def manifest_name(spec: str) -> str:
    """``handoff.buggy.json`` for ``handoff:buggy``."""
    return re.sub(r"[^A-Za-z0-9._-]+", ".", spec).strip(".") + ".json"


def file_name(text: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(text.encode()).hexdigest()[:20]}.smt2"


def certificate(
    system: TransitionSystem, conditions: Iterable[ConditionResult], properties: Sequence[str], *, all_flags: bool = False
) -> Certificate:
    """The certificate of a proof: `conditions` are all conditions of the claims of an inductive set, each proved.

    Raises ValueError for a condition that is not proved; whether the set is complete is for `recheck` to say.
    """
    induction = Induction(system, all_flags=all_flags)
    printer = Printer(induction)
    entries, files, claims = [], {}, set()
    for result in sorted(conditions, key=lambda result: _order(induction, result.step, result.claim)):
        if result.answer is not Answer.PROVED:
            raise ValueError(f"{result.name} is not proved")
        text = printer.text(induction.condition(result.step, result.claim).under(result.used))
        files[file_name(text)] = text
        entries.append(ConditionEntry(result.step, result.claim, tuple(sorted(result.used)), file_name(text)))
        claims.add(result.claim)
    manifest = Manifest(
        SCHEMA,
        system.name,
        system_hash(system),
        None if all_flags else dict(system.flag_values),
        tuple(properties),
        tuple(claim_entry(claim) for name, claim in induction.claims.items() if name in claims),
        tuple(entries),
        z3_name(),
    )
    return Certificate(manifest, files)


def _order(induction: Induction, step: str, claim: str) -> tuple[int, int]:
    return list(induction.claims).index(claim), induction.steps(claim).index(step)


def claim_entry(claim: Claim) -> ClaimEntry:
    return ClaimEntry(claim.name, claim.lemma, f"{signature('', claim.parameters)} {expression(claim.condition)}")


# -- files


def write_certificates(certificates: Iterable[Certificate], directory: str | os.PathLike[str], *, alone: bool = False) -> None:
    """Write certificates into `directory`; with `alone`, those of other specs there are deleted. Raises CertificateError when
    that is not possible."""
    root = Path(directory)
    files: dict[str, bytes] = {}
    for entry in certificates:
        files |= {name: text.encode() for name, text in entry.files.items()}
        files[manifest_name(entry.manifest.spec)] = manifest_bytes(entry.manifest)
    try:
        (root / FOLDER).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (root / name).write_bytes(data)
        for path in (*root.glob("*.json"), *root.glob(f"{FOLDER}/*.smt2")) if alone else ():
            if path.relative_to(root).as_posix() not in files:
                path.unlink()
    except OSError as problem:
        raise CertificateError(f"{printable(str(root))}: certificates were not written: {problem.strerror}") from None


def manifest_bytes(manifest: Manifest) -> bytes:
    """The text of a manifest: one line for each claim and each condition, so that a person can compare two."""
    lines = []
    for name, value in msgspec.to_builtins(manifest).items():
        if name in ("claims", "conditions") and value:
            rows = ",\n".join(f"  {_json(row)}" for row in value)
            lines.append(f'"{name}": [\n{rows}\n]')
        else:
            lines.append(f'"{name}": {_json(value)}')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def read_manifests(directory: str | os.PathLike[str]) -> dict[str, Manifest]:
    """The manifests in `directory`, by file name. Raises CertificateError when there is none, or one is not well formed."""
    root = Path(directory)
    if not root.is_dir():
        raise CertificateError(f"{printable(str(root))} is not a directory; certificates are a directory with manifests (*.json)")
    paths = sorted(path for path in root.glob("*.json"))
    if not paths:
        raise CertificateError(f"{printable(str(root))} holds no manifest (*.json)")
    if len(paths) > MOST_MANIFESTS:
        raise CertificateError(f"{printable(str(root))} holds {len(paths):,} manifests; at most {MOST_MANIFESTS} are read")
    return {path.name: _read_manifest(path) for path in paths}


def _read_manifest(path: Path) -> Manifest:
    shown = printable(str(path))
    data = bounded(path, LARGEST_MANIFEST)
    if data is None:
        raise CertificateError(f"{shown}: not a readable file")
    if len(data) > LARGEST_MANIFEST:
        raise CertificateError(f"{shown}: larger than {LARGEST_MANIFEST:,} bytes, which no manifest is")
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.ValidationError as problem:
        raise CertificateError(f"{shown}: not a manifest of kvmodel: {printable(str(problem), 500)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise CertificateError(f"{shown}: not JSON: {printable(str(problem), 500)}") from None
    if manifest.schema != SCHEMA:
        raise CertificateError(f"{shown}: schema {manifest.schema}; this kvmodel reads {SCHEMA}")
    return manifest


def bounded(path: Path, most: int) -> bytes | None:
    """What is in a file, up to one byte more than `most`; None when there is no such plain file."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError:
        return None
