# What people and CI call. Everything happens in .venv, which pyproject.toml fills.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: incident test lint slow browser bench simulate variants proofs report test-engines engines-slow engines-table clean

incident: .venv/ready  ## the 2026 incident: its counterexample, then the recommended design
	@$(BIN)/kvmodel check handoff:buggy --expect violated
	@$(BIN)/kvmodel check handoff

test: lint  ## everything that CI runs; with a fixed hash seed, so that random systems are the same ones every time
	PYTHONHASHSEED=0 $(BIN)/pytest -n 2

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: .venv/ready  ## long checks that `make test` leaves out
	$(BIN)/pytest -m 'slow and not engines'

browser: .venv/ready  ## checks by other tools' own parsers; needs node and npm
	$(BIN)/pytest -m browser

bench: .venv/ready  ## the fast readings beside their peers, in one run
	$(BIN)/pytest benchmarks --benchmark-only

simulate: .venv/ready  ## the incident at its real size
	$(BIN)/kvmodel simulate

variants: .venv/ready  ## write the table of docs/variants.md again
	$(BIN)/python -m tests.specs.variants

proofs: .venv/ready  ## prove everything that ships again and write proofs/ anew (minutes)
	PYTHONHASHSEED=0 $(BIN)/python -m tests.specs.proofs

report: .venv/ready  ## write docs/incident.html again, from the incident's shortest violation
	$(BIN)/python -m tests.docs.incident

test-engines: .venv-engines/ready  ## the newest release of each engine and one that is known to be red (downloads them)
	PYTHONHASHSEED=0 .venv-engines/bin/pytest -n 2 -m 'engines and not slow' tests/engines

engines-slow: .venv-engines/ready  ## bugs seeded into both engines, one after the other; long logs; what recording costs
	PYTHONHASHSEED=0 .venv-engines/bin/pytest -m 'engines and slow' tests/engines

engines-table: .venv-engines/ready  ## every machine on every release; writes docs/engines/measured.md again
	.venv-engines/bin/python -m tests.engines.releases

.venv-engines/ready: pyproject.toml
	$(PYTHON) -m venv .venv-engines
	.venv-engines/bin/pip install --quiet --disable-pip-version-check --editable '.[dev,engines]'
	@touch .venv-engines/ready

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch .venv/ready

clean:
	rm -rf .venv .venv-engines
