# Every command in one line. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help demo test check audit bench docs dist federation
DEVELOP := digits,files,torch,train,flower,test,check,docs,dist
URNA := .venv/bin/urna
RUN := .venv/bin/python
DATA := $(or $(URNA_DATA),../shared/data)

help: ## list these commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## set up the light core and run a first private search
	@tools/setup.sh
	@$(URNA) search --data digits --clients 60 --epsilon 2 --delta 1e-5 --output demo
	@echo
	@echo "Next: README.md, '$(URNA) --help', and for torch models and Flower apps"
	@echo "      .venv/bin/pip install -c constraints.txt -e '.[torch]'   (or '.[flower]')"

test: ## set up everything and run all tests, on two cores
	@tools/setup.sh $(DEVELOP)
	OMP_NUM_THREADS=1 $(RUN) -m pytest -m "not audit" -n 2 --dist loadfile

check: ## style and types: ruff, mypy --strict
	@tools/setup.sh $(DEVELOP)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/mypy --config-file tests/mypy.ini

audit: ## the long tests, on two cores: kills in a loop, large electorates, liars by the thousand
	@tools/setup.sh $(DEVELOP)
	OMP_NUM_THREADS=1 $(RUN) -m pytest -m audit --timeout 3600 -n 2 --dist loadfile

bench: ## measure every claim beside its peer, and replay the evaluation
	@tools/setup.sh $(DEVELOP)
	@for line in noise.py secagg.py he.py local_search flower_vote.py dp_hype/evaluate.py "hyades.py --round" \
		"privtuna.py --cost --parties 10" "dp_helmet.py --data $(DATA)"; do \
		echo "== $$line"; $(RUN) benchmarks/$$line || exit 1; done

docs: ## the site, from docs/ and docstrings, into build/docs; warnings are errors
	@tools/setup.sh $(DEVELOP)
	$(RUN) -m sphinx -q -W --keep-going docs build/docs
	@echo "open build/docs/index.html"

dist: ## a wheel and an sdist, into dist/
	@tools/setup.sh $(DEVELOP)
	$(RUN) -m build --no-isolation --outdir dist .

federation: ## a SuperLink and three SuperNodes with TLS on this machine, until Ctrl-C
	@tools/setup.sh $(DEVELOP)
	$(RUN) examples/deployment/start.py --sites 3 --folder $(or $(FOLDER),build/federation)
