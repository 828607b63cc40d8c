"""Certificates: the same bytes every time, and everything that is wrong with one is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kvmodel.analyses.certificates import (
    Certificate,
    CertificateError,
    certificate,
    file_name,
    manifest_bytes,
    manifest_name,
    read_manifests,
    system_hash,
    write_certificates,
)
from kvmodel.analyses.recheck import Recheck, recheck, regenerate, system_of
from kvmodel.analyses.smtlib import Cvc5, Printer
from kvmodel.errors import UsageError
from kvmodel.language.load import load_spec
from kvmodel.language.system import TransitionSystem
from kvmodel.readings.conditions import Induction
from kvmodel.readings.induction import prove
from kvmodel.readings.solver import Answer, ConditionResult
from tests import lending
from tests.specs import proofs

SPEC = "pages:one-pool"
NAME = "pages.one-pool.json"


@pytest.fixture(scope="module")
def made() -> Certificate:
    """The certificate of a small spec."""
    proof = prove(load_spec(SPEC), jobs=1)
    return certificate(proof.system, proof.conditions, proof.asked)


@pytest.fixture
def folder(made: Certificate, tmp_path: Path) -> Path:
    """The certificate of a small spec, as files."""
    write_certificates([made], tmp_path)
    return tmp_path


def again(folder: Path) -> Recheck:
    return recheck(folder, Cvc5(20))


def messages(folder: Path) -> list[str]:
    return [str(problem) for problem in again(folder).problems]


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest by hand."""
    path = folder / NAME
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_what_was_proved_agrees(folder: Path, made: Certificate) -> None:
    outcome = again(folder)
    assert outcome.problems == ()
    assert outcome.conditions == len(made.manifest.conditions) > 30
    assert [entry.spec for entry in outcome.certificates] == [SPEC]


def test_the_same_bytes_every_time(made: Certificate, tmp_path: Path) -> None:
    proof = prove(load_spec(SPEC), jobs=1)
    second = certificate(proof.system, reversed(proof.conditions), proof.asked)
    assert second == made
    assert manifest_bytes(second.manifest) == manifest_bytes(made.manifest)


def test_a_manifest_is_read_as_it_was_written(folder: Path, made: Certificate) -> None:
    assert read_manifests(folder) == {NAME: made.manifest}


def test_files_are_named_by_their_content(folder: Path) -> None:
    for path in folder.glob("conditions/*"):
        assert path.stem == hashlib.sha256(path.read_bytes()).hexdigest()[:20]


def test_a_file_says_what_it_is_about(made: Certificate) -> None:
    entry = next(entry for entry in made.manifest.conditions if (entry.step, entry.claim) == ("land", "fresh_read"))
    lines = made.files[entry.file].splitlines()
    assert lines[0] == "; land/fresh_read: land keeps fresh_read"
    assert lines[2 : 2 + len(entry.uses)] == [f";   {name}" for name in entry.uses]
    assert lines[2 + len(entry.uses)] == "(set-logic ALL)"
    assert lines[-1] == "(check-sat)"


def test_only_used_claims_are_hypotheses(made: Certificate) -> None:
    """The file of a condition that needs no other claim is shorter than with every claim."""
    induction = Induction(load_spec(SPEC))
    entry = next(entry for entry in made.manifest.conditions if entry.step == "post")
    assert made.files[entry.file].count("(assert") < Printer(induction).text(induction.condition(entry.step, entry.claim)).count("(assert")


def test_variants_share_files() -> None:
    first, second = load_spec(SPEC), load_spec("pages:one-pool-without-quarantine")
    texts = []
    for system in (first, second):
        induction = Induction(system)
        texts.append(Printer(induction).text(induction.condition("allocate", "exclusive_owner").under(("exclusive_owner",))))
    assert texts[0] == texts[1]


def test_a_proof_for_every_assignment_of_flags(tmp_path: Path) -> None:
    proof = prove(load_spec(SPEC), ["exclusive_owner"], all_flags=True, jobs=1)
    made = certificate(proof.system, proof.conditions, proof.asked, all_flags=True)
    assert made.manifest.flags is None
    write_certificates([made], tmp_path)
    outcome = again(tmp_path)
    assert outcome.problems == ()
    assert outcome.certificates[0].all_flags


def test_a_spec_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest names it as people do; here the root of the repository is where it is found."""
    monkeypatch.chdir(lending.ROOT)
    proof = prove(lending.system(), jobs=1)
    shown = [name for name in proof.asked if proof.proved(name)]
    assert shown
    write_certificates([certificate(proof.system, proof.conditions, shown)], tmp_path)
    outcome = again(tmp_path)
    assert outcome.problems == ()
    assert outcome.certificates[0].spec == lending.SPEC


def test_only_proved_conditions_are_certified() -> None:
    result = ConditionResult("land", "isolated_read", Answer.UNKNOWN)
    with pytest.raises(ValueError, match="land/isolated_read is not proved"):
        certificate(load_spec(SPEC), [result], ["isolated_read"])


# -- the hash


def test_documentation_and_names_do_not_change_the_hash() -> None:
    system = load_spec(SPEC)
    plain = replace(
        system,
        name="another",
        doc="",
        actions=tuple(replace(action, doc="x", node="nowhere") for action in system.actions),
        declared=tuple(replace(prop, doc="x") for prop in system.declared),
        flags=tuple(replace(flag, doc="x") for flag in system.flags),
    )
    assert system_hash(plain) == system_hash(system)


def test_what_has_a_meaning_changes_the_hash() -> None:
    system = load_spec(SPEC)
    land = system.action("land")
    changed = [
        system.with_flags({"quarantine": False}),
        replace(system, lemmas=()),
        replace(system, initial=()),
        replace(system, declared=system.declared[1:]),
        replace(system, actions=tuple(action for action in system.actions if action is not land)),
        replace(system, actions=tuple(replace(action, updates=action.updates[1:]) for action in system.actions)),
        replace(system, actions=tuple(replace(action, guards=action.guards[1:]) for action in system.actions)),
    ]
    hashes = {system_hash(entry) for entry in (system, *changed)}
    assert len(hashes) == len(changed) + 1


# -- broken on purpose


def test_a_flipped_byte(folder: Path, made: Certificate) -> None:
    entry = made.manifest.conditions[0]
    path = folder / entry.file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert f"{NAME}: {entry.step}/{entry.claim}: {entry.file} is not the condition that the spec has" in messages(folder)


def test_a_longer_file(folder: Path, made: Certificate) -> None:
    path = folder / made.manifest.conditions[0].file
    path.write_bytes(path.read_bytes() + b"\n")
    assert "is not the condition that the spec has" in messages(folder)[0]


def test_a_dropped_file(folder: Path, made: Certificate) -> None:
    entry = made.manifest.conditions[0]
    (folder / entry.file).unlink()
    assert f"{NAME}: {entry.step}/{entry.claim}: {entry.file} is missing" in messages(folder)


def test_another_specs_certificate(folder: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        content["spec"] = "pages"

    change(folder, edit)
    outcome = again(folder)
    assert [str(problem) for problem in outcome.problems] == [
        f"{NAME}: made for another spec than pages is now, or for other flags (the hashes differ)"
    ]
    assert outcome.conditions == 0


def test_a_spec_with_other_flags(folder: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        content["spec"] = "handoff"

    change(folder, edit)
    assert messages(folder) == [f"{NAME}: its flags are not those of handoff"]


@pytest.mark.parametrize("flag", ["quarantine", "zero_on_free", "quarantine_gives_up"])
def test_a_changed_flag(folder: Path, flag: str) -> None:
    change(folder, lambda content: content["flags"].update({flag: not content["flags"][flag]}))
    assert ["the hashes differ" in message for message in messages(folder)] == [True]


def test_a_changed_flag_with_its_hash_fixed_up(folder: Path) -> None:
    """Without the quarantine the conditions are others, and one of them is false."""
    system = load_spec(SPEC).with_flags({"quarantine": False})

    def edit(content: dict[str, Any]) -> None:
        content["flags"]["quarantine"] = False
        content["system"] = system_hash(system)

    change(folder, edit)
    found = messages(folder)
    assert any("is not the condition that the spec has" in message for message in found)
    assert any("abort/isolated_write: cvc5" in message and "answers sat, not unsat" in message for message in found)


def test_any_flags_instead_of_some(folder: Path) -> None:
    change(folder, lambda content: content.update(flags=None))
    assert any("is not the condition that the spec has" in message for message in messages(folder))


def test_a_dropped_condition(folder: Path) -> None:
    change(folder, lambda content: content["conditions"].pop(3))
    assert [message.rpartition(": ")[2] for message in messages(folder)] == ["the manifest leaves this condition out"]


def test_a_condition_that_is_none(folder: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        content["conditions"].append({**content["conditions"][0], "step": "teleport"})
        content["conditions"].append(content["conditions"][0])

    change(folder, edit)
    found = messages(folder)
    assert any(message.endswith("no such condition") for message in found)
    assert any(message.endswith("a condition is listed twice") for message in found)


def test_an_added_property(folder: Path) -> None:
    change(folder, lambda content: content["properties"].append("honest_status"))
    assert messages(folder) == [f"{NAME}: the property honest_status is not among its claims, so nothing shows it"]


def test_a_lemma_is_no_property(folder: Path) -> None:
    change(folder, lambda content: content["properties"].append("written_is_held"))
    assert messages(folder) == [f"{NAME}: written_is_held is a lemma, not a property"]


def test_no_property(folder: Path) -> None:
    change(folder, lambda content: content.update(properties=[]))
    assert messages(folder) == [f"{NAME}: shows no property"]


def test_an_added_claim(folder: Path) -> None:
    """A claim that the spec has and nobody proved: its conditions are missing."""
    manifest = read_manifests(folder)[NAME]
    other = next(name for name in manifest.properties if name == "exclusive_owner")

    def edit(content: dict[str, Any]) -> None:
        content["conditions"] = [entry for entry in content["conditions"] if entry["claim"] != other]

    change(folder, edit)
    found = messages(folder)
    assert found
    assert all(message.endswith("the manifest leaves this condition out") for message in found)


def test_a_claim_of_another_text(folder: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        content["claims"][0]["condition"] = "True"
        content["claims"].append({"name": "peace", "lemma": False, "condition": "True"})

    change(folder, edit)
    found = messages(folder)
    assert any("what it says of the claim isolated_read is not what the spec says" in message for message in found)
    assert any("has no claim 'peace'" in message for message in found)


def test_a_dropped_claim(folder: Path) -> None:
    """A hypothesis that nothing shows."""
    change(folder, lambda content: content.update(claims=[entry for entry in content["claims"] if entry["name"] != "pages_conserved"]))
    found = messages(folder)
    assert any("uses pages_conserved, which this certificate does not show" in message for message in found)


def test_a_derived_claim_helps_nobody(folder: Path) -> None:
    change(folder, lambda content: content["conditions"][1]["uses"].append("no_deadlock"))
    assert any("uses no_deadlock, which this certificate does not show" in message for message in messages(folder))


def test_a_dropped_hypothesis(folder: Path) -> None:
    """With the hypotheses that it needs struck from the manifest, a condition is another one."""

    def edit(content: dict[str, Any]) -> None:
        for entry in content["conditions"]:
            entry["uses"] = []

    change(folder, edit)
    found = messages(folder)
    assert any("is not the condition that the spec has" in message for message in found)
    assert any("answers sat, not unsat" in message for message in found)


def test_a_satisfiable_file_with_its_hash_fixed_up(folder: Path, made: Certificate) -> None:
    text = "(set-logic ALL)\n(check-sat)\n"
    name = f"conditions/{hashlib.sha256(text.encode()).hexdigest()[:20]}.smt2"
    (folder / name).write_text(text, encoding="utf-8")
    change(folder, lambda content: content["conditions"][0].update(file=name))
    assert [f"{name} is not the condition that the spec has" in message for message in messages(folder)] == [True]


def test_an_unsatisfiable_file_does_not_help(tmp_path: Path) -> None:
    """A certificate of a property that is false, made by somebody who does not ask a solver: the second one says so."""
    system = load_spec("pages:one-pool-without-quarantine")
    induction = Induction(system)
    claims = [name for name, claim in induction.claims.items() if not claim.derived]
    believed = [
        ConditionResult(step, name, Answer.PROVED, frozenset(claims if step != "initially" else ()))
        for name in claims
        for step in induction.steps(name)
    ]
    write_certificates([certificate(system, believed, ["isolated_write"])], tmp_path)
    found = messages(tmp_path)
    assert found
    assert all("cvc5" in message and message.endswith(", not unsat") for message in found)
    assert any("abort/isolated_write" in message for message in found)


@dataclass
class Stub:
    """A solver that always says the same, and keeps what it was asked."""

    answer: str
    texts: list[str] = field(default_factory=list)
    name: str = "a solver"

    def ask(self, text: str) -> str:
        self.texts.append(text)
        return self.answer


@pytest.mark.parametrize("answer", ["sat", "unknown", "", "unsat\nunsat", "unsat "])
def test_any_other_answer(folder: Path, answer: str) -> None:
    outcome = recheck(folder, Stub(answer))
    assert len(outcome.problems) == outcome.conditions
    assert f"a solver answers {answer}, not unsat" in str(outcome.problems[0])


def test_shared_conditions_are_asked_once(made: Certificate, tmp_path: Path) -> None:
    write_certificates([made], tmp_path)
    (tmp_path / "again.json").write_bytes((tmp_path / NAME).read_bytes())
    solver = Stub("unsat")
    outcome = recheck(tmp_path, solver)
    assert len(solver.texts) == len(set(solver.texts)) == outcome.asked == len(made.files)
    assert outcome.conditions == 2 * len(made.manifest.conditions)


def test_processes_find_the_same(folder: Path, made: Certificate) -> None:
    (folder / made.manifest.conditions[0].file).unlink()
    assert recheck(folder, Cvc5(20), jobs=2) == again(folder)


def test_writing_leaves_nothing_old(folder: Path, made: Certificate) -> None:
    (folder / "old.json").write_text("{}", encoding="utf-8")
    (folder / "conditions" / "old.smt2").write_text("", encoding="utf-8")
    (folder / "README.md").write_text("stays", encoding="utf-8")
    write_certificates([made], folder, alone=True)
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "conditions", NAME]
    assert len(list((folder / "conditions").iterdir())) == len(made.files)


# -- what is not a certificate


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"schema": 1', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not "),
        (b"[]", "not a manifest"),
        (b"{}", "missing required field"),
        (b"0" * 4_000_001, "larger than 4,000,000 bytes"),
    ],
)
def test_hostile_manifests(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(CertificateError, match=f"x.json: .*{said}"):
        again(tmp_path)


def test_a_truncated_manifest(folder: Path) -> None:
    path = folder / NAME
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CertificateError, match="not JSON"):
        again(folder)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x.smt2", "conditions/../../x.smt2", "conditions/x.smt2", "conditions/0123456789abcdef0123.smt2\n", ""]
)
def test_file_names_stay_inside(folder: Path, name: str) -> None:
    change(folder, lambda content: content["conditions"][0].update(file=name))
    with pytest.raises(CertificateError, match=r"\$\.conditions\[0\]\.file"):
        again(folder)


def test_unknown_fields(folder: Path) -> None:
    change(folder, lambda content: content.update(assume="everything"))
    with pytest.raises(CertificateError, match="unknown field `assume`"):
        again(folder)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"schema": 2}, "schema 2; this kvmodel reads 1"),
        ({"schema": "1"}, r"\$\.schema"),
        ({"system": "md5:0"}, r"\$\.system"),
        ({"spec": "handof"}, "did you mean 'handoff'"),
        ({"spec": ""}, r"\$\.spec"),
        ({"flags": {"x": 1}}, r"\$\.flags"),
        ({"properties": ["x"] * 1_001}, r"\$\.properties"),
        ({"claims": None}, r"\$\.claims"),
    ],
)
def test_fields_of_another_kind(folder: Path, edit: dict[str, Any], said: str) -> None:
    change(folder, lambda content: content.update(edit))
    with pytest.raises(CertificateError, match=f"{NAME}: .*{said}"):
        again(folder)


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="is not a directory"):
        again(tmp_path / "nowhere")
    with pytest.raises(CertificateError, match="holds no manifest"):
        again(tmp_path)


def test_a_manifest_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()
    with pytest.raises(CertificateError, match="not a readable file"):
        again(tmp_path)


def test_without_cvc5_nothing_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cvc5", None)
    with pytest.raises(UsageError, match=r"pip install 'kvmodel\[recheck\]'"):
        Cvc5(1)


def test_names_of_manifests() -> None:
    assert manifest_name("handoff:sglang-0.5.16") == "handoff.sglang-0.5.16.json"
    assert manifest_name("../my dir/x.py:Mine") == "my.dir.x.py.Mine.json"


# -- those that ship


PROVED = tuple(spec for spec in proofs.SPECS if spec not in proofs.COUNTING)


def test_there_is_one_for_each_spec_of_which_something_is_proved() -> None:
    assert sorted(read_manifests(proofs.DIRECTORY)) == sorted(manifest_name(spec) for spec in PROVED)


AGAIN = "run `make proofs`, which writes proofs/ anew"


@pytest.mark.parametrize("name", sorted(read_manifests(proofs.DIRECTORY)))
def test_the_shipped_ones_are_in_step(name: str) -> None:
    """Each is about the spec as it is now, and its files are there and have the content that they are named for."""
    manifest = read_manifests(proofs.DIRECTORY)[name]
    assert isinstance(system_of(name, manifest), TransitionSystem), AGAIN
    for entry in manifest.conditions:
        assert file_name((proofs.DIRECTORY / entry.file).read_text(encoding="utf-8")) == entry.file, AGAIN


def test_there_is_no_file_too_many(record_property: Callable[[str, object], None]) -> None:
    manifests = read_manifests(proofs.DIRECTORY)
    named = {entry.file for manifest in manifests.values() for entry in manifest.conditions}
    assert {path.relative_to(proofs.DIRECTORY).as_posix() for path in proofs.DIRECTORY.glob("conditions/*")} == named, AGAIN
    count = sum(len(manifest.conditions) for manifest in manifests.values())
    record_property("summary", f"certificates: {len(manifests)} specs, {count:,} conditions in {len(named):,} files")


def in_step(specs: Sequence[str]) -> None:
    """Fails when a condition made again from a spec differs from its file."""
    names = {manifest_name(spec) for spec in specs}
    manifests = {name: manifest for name, manifest in read_manifests(proofs.DIRECTORY).items() if name in names}
    for name, made in regenerate(proofs.DIRECTORY, manifests):
        assert made.problems == (), f"{name}: {AGAIN}"
        assert len(made.texts) == len(manifests[name].conditions)


def test_conditions_made_again() -> None:
    in_step(("handoff", "pages", "pages:one-pool"))


@pytest.mark.slow
def test_all_conditions_made_again() -> None:
    in_step(PROVED)


@pytest.mark.slow
def test_cvc5_agrees_with_all_that_ship() -> None:
    assert recheck(proofs.DIRECTORY, Cvc5(60)).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("spec", proofs.SPECS)
def test_what_ships_is_all_that_can_be_proved(spec: str) -> None:
    found = proofs.certified(spec)
    if spec not in PROVED:
        assert found is None
        return
    assert found is not None
    shipped = read_manifests(proofs.DIRECTORY)[manifest_name(spec)]
    assert found.manifest.properties == shipped.properties


def test_other_certificates_are_kept_unless_they_are_to_stand_alone(tmp_path: Path) -> None:
    for name in ("pages", "pages:one-pool"):
        proof = prove(load_spec(name), ["exclusive_owner"], jobs=1)
        made = certificate(proof.system, proof.conditions, proof.asked)
        write_certificates([made], tmp_path)
    assert set(read_manifests(tmp_path)) == {"pages.json", "pages.one-pool.json"}
    write_certificates([made], tmp_path, alone=True)
    assert set(read_manifests(tmp_path)) == {"pages.one-pool.json"}
    assert {path.name for path in (tmp_path / "conditions").iterdir()} == {Path(name).name for name in made.files}
