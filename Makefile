# Commands of this repository. They need Python 3.11 to 3.14, make and a network, nothing else.

SHELL := /bin/bash

# The version of PyTorch that this release is tested with.
TORCH := 2.13.0
# An index to take PyTorch from, in place of the one that pip is configured with.
TORCH_INDEX ?=
# The oldest Optuna that studies may be run with.
OLDEST_OPTUNA := 4.2.0
# PyTorch looks up a name for each connection to a store: a name server that drops a query holds
# a connection up for 1 s, not 5.
export RES_OPTIONS ?= timeout:1 attempts:3
# What integrations, objectives of examples/frameworks, examples and their tests need beside castor.
FRAMEWORKS := lightning==2.6.6 transformers==5.23.0 accelerate==1.15.0 \
	optuna-integration==5.0.0 mlflow-skinny==3.17.2 wandb==0.31.0 tensorboard==2.21.0 \
	optunahub==0.5.0
# The validators of FOCUS 1.0 and 1.2, and the last packages that they work with. The second one needs
# Python 3.12 or later.
FOCUS_1_0 := focus-validator==1.0.0 'multimethod<1.12'
FOCUS_1_2 := focus-validator==2.2.1 'numpy<2' 'pyarrow<21'
LATER_PYTHON ?= python3.12
# Where `make wheels` writes Castor's wheel and the lists of packages that go with it.
WHEELS ?= dist
# PyTorch here with its packages for CUDA, which tool.uv leaves out of requirements.lock.
PINS := build/lock/bin/uv pip compile pyproject.toml --no-config --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-annotate --quiet \
	--default-index https://pypi.org/simple --custom-compile-command 'make wheels'
# Arguments for the command behind demo, test, test-kills, dst, dst-mutations, soak or lock.
ARGS ?=
# Number of simulated runs of `make dst`, and of further ones with gangs of instances and studies.
SEEDS ?= 200
GANG_SEEDS ?= 40
STUDY_SEEDS ?= 20
LIMIT_SEEDS ?= 40

IS_SUITABLE := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$python -c '$(IS_SUITABLE)' 2>/dev/null && echo $$python && break; done)

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
UNFINISHED := .venv/.unfinished
INSTALLED := .venv/.installed

.PHONY: help setup demo site test test-all test-kills test-aws test-gcp test-optuna test-optuna-next test-frameworks dst dst-mutations studies focus lint bench bench-check bench-gpu soak lock wheels sbom licences image-aws image-gcp clean
.DEFAULT_GOAL := help

help: ## List these commands.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18
	@echo
	@echo "TORCH_INDEX=https://download.pytorch.org/whl/cpu takes PyTorch's small build, without CUDA."
	@echo "PYTHON=... names the Python to set up with, ARGS=... hands arguments on."

setup: $(INSTALLED) ## Make .venv with everything in it, pinned.

demo: $(INSTALLED) ## Watch two real training jobs share a small cloud on this machine.
	@$(BIN)/castor demo $(ARGS)

test: $(INSTALLED) ## Run the everyday tests, four at a time: at most five minutes on two cores.
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)

test-all: $(INSTALLED) ## Run those and the tests that need real time or many processes, as CI does.
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 4 --dist worksteal \
		-m "not slow and not aws and not gcp" $(ARGS)

test-kills: $(INSTALLED) ## Run the tests that take minutes: controllers killed at random.
	@$(BIN)/python -m pytest -m slow $(ARGS)

test-aws: $(INSTALLED) ## Run all tests of EC2, on a fake one: from Terraform to a job that trains, calls that fail.
	@$(BIN)/python -m pytest -rs -n 2 --dist loadfile -m "not gcp" \
		tests/end_to_end tests/terraform tests/providers/aws $(ARGS)
	@$(BIN)/python -m pytest -rs -m aws tests/node $(ARGS)

test-gcp: $(INSTALLED) ## Run all tests of Compute Engine, on a fake one: from its start to a job that trains, calls that fail.
	@$(BIN)/python -m pytest -rs -n 2 --dist loadfile -m "not aws" \
		tests/end_to_end tests/terraform/test_gcp_module.py tests/fakes/gcp tests/providers/gcp \
		tests/providers/cloud $(ARGS)

terraform-copies: ## Copy the files that all Terraform modules share from aws/ to gcp/.
	@cd terraform/modules && for file in variables_common.tf files/agent.sh files/datasets.sh files/first_boot.sh \
		files/retry.sh; do \
		cp aws/$$file gcp/$$file; done

test-optuna: $(INSTALLED) ## Run the tests of studies with the oldest Optuna that does.
	@$(PIP) install --quiet --no-deps --upgrade --target build/optuna optuna==$(OLDEST_OPTUNA)
	@PYTHONPATH=$(CURDIR)/build/optuna $(BIN)/python -m pytest -n 3 --dist worksteal tests/hpo $(ARGS)

test-optuna-next: $(INSTALLED) ## Run the tests of studies with the newest Optuna, pre-releases too.
	@$(PIP) install --quiet --no-deps --upgrade --pre --target build/optuna-next optuna
	@PYTHONPATH=$(CURDIR)/build/optuna-next $(BIN)/python -c 'import optuna; print("Optuna", optuna.__version__)'
	@PYTHONPATH=$(CURDIR)/build/optuna-next $(BIN)/python -m pytest -n 3 --dist worksteal tests/hpo $(ARGS)

test-frameworks: build/frameworks/.installed ## Run tests and examples with Lightning, Transformers, Accelerate and trackers.
	@PYTHONPATH=$(CURDIR) build/frameworks/bin/python -m pytest -rs -m "not slow and not aws and not gcp" \
		tests/hpo/test_frameworks.py tests/hpo/test_optunahub.py tests/integrations \
		tests/end_to_end/test_examples.py::test_an_example_with_libraries_does_so_too $(ARGS)

# An environment of its own, on top of .venv's packages: most users need none of these.
build/frameworks/.installed: $(INSTALLED) Makefile
	@rm -rf build/frameworks && $(BIN)/python -m venv build/frameworks
	@$(BIN)/python -c 'import sysconfig; p = sysconfig.get_path("purelib"); \
		print(f"import site; site.addsitedir({p!r})")' > \
		"$$(build/frameworks/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
	@build/frameworks/bin/python -m pip --disable-pip-version-check install --quiet $(FRAMEWORKS)
	@touch $@

dst: $(INSTALLED) ## Simulate SEEDS runs of the whole controller amid faults and check its invariants.
	@$(BIN)/python -m tests.dst --seeds $(SEEDS) $(ARGS)
	@$(BIN)/python -m tests.dst --seeds $(GANG_SEEDS) --first 100000
	@$(BIN)/python -m tests.dst --seeds $(STUDY_SEEDS) --first 200000
	@$(BIN)/python -m tests.dst --seeds $(LIMIT_SEEDS) --first 300000

dst-mutations: $(INSTALLED) ## Plant defects in the controller; each must break an invariant of a simulated run.
	@$(BIN)/python -m tests.dst.mutations $(ARGS)

studies: $(INSTALLED) ## Run the studies of examples/ on this machine's cores, three trials each.
	@cd "$$(mktemp -d)" && for study in digits chargpt; do \
		$(CURDIR)/$(BIN)/python $(CURDIR)/examples/$$study/study.py --trials 3 || exit 1; done

focus: $(INSTALLED) ## Check the export of costs by the FinOps Foundation's validators of FOCUS 1.0 and 1.2.
	@test -x build/focus/1.0/bin/focus-validator || { $(PYTHON) -m venv build/focus/1.0 \
		&& build/focus/1.0/bin/pip --quiet install $(FOCUS_1_0); }
	@test -x build/focus/1.2/bin/focus-validator || { $(LATER_PYTHON) --version >/dev/null 2>&1 \
		|| { echo "FOCUS 1.2 is not checked: name a Python 3.12 with LATER_PYTHON=..."; exit 0; } \
		&& $(LATER_PYTHON) -m venv build/focus/1.2 && build/focus/1.2/bin/pip --quiet install $(FOCUS_1_2); }
	@$(BIN)/python -m pytest -rs tests/ledger/test_focus.py $(ARGS)

lint: $(INSTALLED) ## Check style, format, plain English, types and the imports between packages.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.style.plain_english
	$(BIN)/mypy
	MYPYPATH=.:benchmarks:benchmarks/scripts $(BIN)/mypy --cache-dir=.mypy_cache/benchmarks \
		--explicit-package-bases --implicit-reexport --disable-error-code=no-any-return \
		benchmarks/*.py benchmarks/scripts/*.py
	$(BIN)/lint-imports

bench: $(INSTALLED) ## Measure what planning, fitting and the training library cost.
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python benchmarks/goodput_fit.py
	$(BIN)/python benchmarks/training_overhead.py

bench-check: $(INSTALLED) ## Measure the check for gradients that are not finite, as a ratio to steps without it.
	$(BIN)/python benchmarks/training_overhead.py --check $(ARGS)

bench-gpu: $(INSTALLED) ## Measure and check a session on this machine's GPUs: parts, scaler, joins, kills, a job.
	$(BIN)/python benchmarks/gpu_overhead.py
	$(BIN)/python benchmarks/checkpoint_pause.py --device cuda --json
	$(BIN)/python benchmarks/gpu_fsdp.py
	$(BIN)/python benchmarks/gpu_scaler.py
	$(BIN)/python benchmarks/gpu_join_kill.py
	$(BIN)/python benchmarks/gpu_instances.py --across gloo
	$(BIN)/python benchmarks/gpu_job.py

soak: $(INSTALLED) ## Kill replicas of a training 2,000 times; goes on where it was ended: ARGS="DIRECTORY --minutes 30".
	$(BIN)/python benchmarks/soak.py $(ARGS)

lock: ## Pin again what pyproject.toml and the image ask for; ARGS=--upgrade takes new versions.
	@"$(PYTHON)" -m venv build/lock
	@build/lock/bin/pip install --quiet uv==0.13.8
	echo torch==$(TORCH) | build/lock/bin/uv pip compile pyproject.toml --constraints - \
		--all-extras --no-emit-package torch --universal --python-version 3.11 \
		--fork-strategy fewest --generate-hashes --quiet \
		--default-index https://pypi.org/simple --custom-compile-command 'make lock' \
		--output-file requirements.lock $(ARGS)
	echo 'setuptools>=77' | $(subst make wheels,make lock,$(PINS)) - --constraints requirements.lock \
		--extra server --extra postgres --extra oidc --extra telemetry --extra aws --extra gcp \
		--output-file examples/deployment/docker/requirements.txt

site: $(INSTALLED) ## Build the site of docs/ strictly, into build/site.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo build/site/index.html

wheels: ## Build what instances of clouds install into WHEELS, and pin their packages with hashes.
	@"$(PYTHON)" -m venv build/lock
	@build/lock/bin/pip install --quiet uv==0.13.8
	@mkdir -p $(WHEELS) && rm -f $(WHEELS)/castor_autoscaler-*.whl
	@build/lock/bin/pip wheel --quiet --no-deps --wheel-dir $(WHEELS) .
	@echo torch==$(TORCH) | $(PINS) --constraints - --constraints requirements.lock \
		--extra training --output-file $(WHEELS)/requirements-node.txt
	@$(PINS) --constraints $(WHEELS)/requirements-node.txt --constraints requirements.lock \
		--extra training --extra server --extra oidc --extra telemetry --extra aws --extra gcp \
		--output-file $(WHEELS)/requirements-controller.txt
	@ls $(WHEELS)

sbom: $(INSTALLED) ## Write the list of all installed packages with versions and licences: dist/castor.cdx.json (CycloneDX).
	@"$(PYTHON)" -m venv build/sbom
	@build/sbom/bin/pip --disable-pip-version-check install --quiet cyclonedx-bom==7.5.0
	@mkdir -p dist && build/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml \
		--output-reproducible --spec-version 1.6 --output-file dist/castor.cdx.json $(BIN)/python
	@echo dist/castor.cdx.json

licences: $(INSTALLED) ## Write docs/licences.md; fail on a licence that is unknown or does not fit.
	@$(BIN)/python -m tests.supply_chain.licences

image-aws: ## Build an image for instances on EC2 with Packer: ARGS="-var region=us-east-1".
	$(call build_image,aws)

image-gcp: ## Build an image for instances on Compute Engine: ARGS="-var project=P -var zone=Z".
	$(call build_image,gcp)

define build_image
	@command -v packer > /dev/null || { \
		echo 'castor: packer is not installed: see https://developer.hashicorp.com/packer/install,' \
			'or use the cloud'\''s own image (docs/images.md)' >&2; exit 1; }
	@$(MAKE) --no-print-directory wheels
	packer init terraform/images/$(1).pkr.hcl
	packer build -var wheels=$(WHEELS) $(ARGS) terraform/images/$(1).pkr.hcl
endef

clean: ## Delete everything that these commands made.
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache
	find autoscaler providers tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +

# A set-up that was interrupted leaves $(UNFINISHED), and the next one starts from nothing.
$(INSTALLED): requirements.lock pyproject.toml
	@if [ -e $(UNFINISHED) ] || [ ! -x $(BIN)/python ]; then \
		"$(PYTHON)" -c '$(IS_SUITABLE)' 2>/dev/null || { \
			echo 'castor: no Python 3.11 to 3.14 with venv is found: install one' \
				'(Debian and Ubuntu: also python3-venv), or name it with PYTHON=...' >&2; \
			exit 1; }; \
		echo "set-up 1/4: .venv with $$("$(PYTHON)" --version)"; \
		rm -rf .venv && mkdir .venv && touch $(UNFINISHED) && "$(PYTHON)" -m venv .venv; \
	fi
	@touch $(UNFINISHED)
	@echo 'set-up 2/4: the pinned packages, each checked against its hash: about 205 MB'
	@$(PIP) install -qq --no-deps --require-hashes --only-binary :all: -r requirements.lock
	@echo "set-up 3/4: torch $(TORCH) from $(or $(TORCH_INDEX),pip's own index)"
	@$(BIN)/python -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null || \
		printf '  %s\n' 'about 200 MB without CUDA; 2.5 to 3 GB with it, as PyPI has it for Linux.' \
			'TORCH_INDEX=https://download.pytorch.org/whl/cpu takes the build without.'
	@quiet=; [ -t 1 ] || quiet=-qq; \
		$(PIP) install $$quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==$(TORCH)
	@echo 'set-up 4/4: castor'
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@$(PIP) check --quiet
	@mv $(UNFINISHED) $@
