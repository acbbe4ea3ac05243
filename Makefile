# Two commands do everything on a machine that has Python 3 and make:
#   make demo    build a sample with CMake and watch its probes fire
#   make test    install what the tests need, check the sources, run the tests
# As root, missing system packages are installed with apt; as a user they are named.

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS)

.PHONY: help demo check test test-all test-distributions test-projects test-machines machines bench lint docs manual pictures clean fuzz audit lock sbom release-check mutants pythons prepare-test prepare-all

help:
	@echo "make demo           build a sample with CMake and watch its probes fire"
	@echo "make check          check the sources and run a few tests of every kind: two minutes"
	@echo "make test           install what the tests need, check the sources, run the tests; of the other machines,"
	@echo "                    one build each of those that clang, the linkers and qemu know by themselves"
	@echo "make test-all       the same, with the slow tests and all machines (cross compilers are installed), and in bare Debians"
	@echo "make test-distributions  make demo and make test in bare systems of Debian 12, 13 and testing (root, debootstrap)"
	@echo "make test-machines  the other machines, whole: compilers and qemu are installed"
	@echo "make test-projects  only the tests that build whole sample projects; as root, each README in a bare Debian, too"
	@echo "make machines       run every machine's tests and write the table of docs/architectures.md"
	@echo "make bench          measure what probes and builds cost (benchmarks/README.md)"
	@echo "make fuzz           change files for FUZZ_SECONDS each way (600), and see that no reader or writer minds"
	@echo "make mutants        put faults into the product, and see that the tests find each (slow)"
	@echo "make pythons        check the wheel with the oldest Python that is supported, and the newest that is to be had"
	@echo "make lint           check the sources (ruff, mypy, clang-format)"
	@echo "make docs           write the documentation as a site, to build/docs"
	@echo "make manual         write the man pages and shell completion from the commands' help"
	@echo "make pictures       make the documentation's pictures from a real trace (Chromium)"
	@echo "make audit          look for known vulnerabilities of the packages that are installed"
	@echo "make lock           write the lists of packages that are installed, with versions and hashes, anew"
	@echo "make sbom           write sbom.cdx.json, which the source distribution carries"
	@echo "make release-check  look whether a release could be made of what is committed"
	@echo "make clean          remove what building and testing left behind"

demo:
	@$(PYTHON) tools/prepare.py demo
	@$(BIN)/python tools/demo.py

FOR = test
prepare-test:
	@$(PYTHON) tools/prepare.py $(FOR)

prepare-all:
	@$(PYTHON) tools/prepare.py all

lint: prepare-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	@if [ -x $(BIN)/clang-format ]; then echo "$(BIN)/clang-format --dry-run --Werror"; \
		find usdtbuild -name '*.[ch]' -exec $(BIN)/clang-format --dry-run --Werror {} +; \
	else echo "The layout of the C is not checked: there is no clang-format for this machine."; fi

check: FOR = check
check: lint
	$(PYTEST) --prepared check --sample 2

test: lint
	$(PYTEST) -m "not slow"

test-all: prepare-all lint audit
	$(PYTEST) --prepared all
	$(PYTHON) tools/distributions.py

audit: prepare-test
	$(BIN)/python tools/audit.py

lock:
	$(PYTHON) tools/lock.py

release-check: prepare-test
	$(BIN)/python tools/release.py

sbom: prepare-test
	$(BIN)/python tools/sbom.py

test-distributions:
	$(PYTHON) tools/distributions.py

test-machines: prepare-all
	$(PYTEST) --prepared all tests/machines tests/machine_facts tests/inside/test_qemu.py

test-projects: prepare-test
	$(PYTEST) -m project

machines: prepare-all
	$(PYTEST) tests/machines tests/live --junitxml=.cache/machines.xml
	$(BIN)/python tools/architectures.py .cache/machines.xml

bench: prepare-test
	@for file in $(filter-out benchmarks/common.py,$(wildcard benchmarks/*.py)); do \
		echo "== $$file"; $(BIN)/python $$file || exit 1; done

fuzz: prepare-test
	FUZZ_SECONDS=$${FUZZ_SECONDS:-600} $(PYTEST) --dist=load tests/fuzz

mutants: prepare-test
	$(BIN)/python tools/mutate.py

pythons: prepare-test
	$(BIN)/python tools/pythons.py

docs: prepare-test
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

manual: prepare-test
	$(BIN)/python tools/manual.py

pictures: prepare-test
	$(BIN)/python tools/pictures.py

clean:
	rm -rf .venv .cache build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
