# Targets for people and for CI; `make help` lists them.
SHELL := /bin/sh
MIX_ENV ?= dev
export MIX_ENV
export LANG ?= C.UTF-8
# Unlike in a project that depends on inet_rdma, in this tree a build without the library is an error.
export INET_RDMA_REQUIRE_NATIVE ?= 1

ebin := $(CURDIR)/_build/$(MIX_ENV)/lib/inet_rdma/ebin
check_ebin := $(CURDIR)/_build/check/lib/inet_rdma/ebin
tools_of = $(1:ebin=inet_rdma_tools/ebin)

# loom replaces the atomics of everything, so its objects are kept apart.
loom_target := $(or $(CARGO_TARGET_DIR),$(CURDIR)/native/target)/loom

# Words for bench/run.py: make bench ARGS="--nodes 2 --seconds 5"
ARGS ?=
# How long `make soak` lasts.
MINUTES ?= 30
# How long `make test-rabbitmq` cuts connections.
SECONDS ?= 120
# The system's python, whose matplotlib is Debian's.
PYTHON ?= /usr/bin/python3

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps build dist rdma-cat rdma-perf erl-flags demo bench bench-native bench-stream \
        bench-fabric bench-faults scale-programs bench-scale bench-instructions bench-share test test-all test-others \
        test-short-others test-rust test-elixir-short \
        test-machines test-compute test-project native-tests ct-modules otp-sources test-matrix test-native \
        test-arm64 test-erlang test-upgrade test-elixir matrix test-rabbitmq test-otp certify test-vm \
        test-bench soak check check-native check-beam check-scripts grown deny dialyzer docs site clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
	  printf '  make %-19s %s\n' "$$name" "$$what"; done

deps: ## install what is missing from Debian, check the Rust toolchain
	@scripts/deps

# One Mix at a time: Elixir before 1.18 does not lock its build directory.
build: ## build the native library and the beams
	@mkdir -p _build
	flock _build/make.lock mix compile

dist: ## build archives of the native library for glibc 2.17 and musl: _build/dist (ARCHIVES="x86_64-gnu aarch64-musl")
	scripts/deps dist
	scripts/dist $(ARCHIVES)

rdma-cat: ## build the pipe over RDMA: native/target/release/rdma-cat
	cd native && cargo build --release -p inet_rdma_cat

rdma-perf: ## build what measures the stream alone: native/target/release/rdma-perf
	cd native && cargo build --release -p inet_rdma_perf

erl-flags: ## print the flags that make erl a node: erl $(make -s erl-flags) -sname a
	@echo "-pa $(ebin) -proto_dist inet_rdma"

demo: deps build ## start real nodes, compare RPC over TCP and over inet_rdma, cut their connections
	$(PYTHON) bench/run.py demo $(ARGS)

bench: deps build ## measure all carriers (ARGS="..." for bench/run.py, see ARGS=--help)
	$(PYTHON) bench/run.py $(ARGS)

bench-native: deps ## measure the native side alone: protocol, fabric, idle connections
	cd native && cargo bench -p inet_rdma_stream --bench transfers
	cd native && cargo bench -p inet_rdma_fabric_shm --bench fabric
	cd native && cargo run --release -p inet_rdma_socket --example idle_connections

bench-stream: deps rdma-perf ## measure the stream between two processes: dynamic, direct, indirect (ARGS="--quick")
	$(PYTHON) bench/run.py stream $(ARGS)

# What cannot be installed is left out of the tables, with a note.
bench-fabric: deps rdma-perf ## latency and bandwidth by message size, beside TCP and UCX (ARGS="--quick")
	-scripts/deps bench
	$(PYTHON) bench/run.py fabric $(ARGS)

scale-programs: ## build what measures many connections: native/target/release/examples
	cd native && cargo build --release -p inet_rdma_socket --example idle_connections --example light_connections

bench-scale: deps build scale-programs ## measure 10 to 1,000 connections and meshes of 10 to 100 nodes (ARGS="--quick")
	$(PYTHON) bench/run.py scale $(ARGS)

# It takes root, and about 40 minutes for each round, 7 with ARGS="--jobs 6".
bench-faults: deps build ## measure what faults of a network do to links, beside inet_tcp (ARGS="--quick --jobs 4")
	$(PYTHON) bench/run.py faults $(ARGS)

bench-instructions: deps ## compare the native side's instructions with the committed ones (ARGS=--update: write them)
	$(PYTHON) bench/instructions.py $(ARGS)

bench-share: deps build ## measure whose CPU time an rpc takes: VM, kernel, libc, library (needs perf)
	-scripts/deps bench
	$(PYTHON) bench/run.py share $(ARGS)

# What `make test` runs of Common Test: each way in which a link begins, carries, is lost, moves and ends. In lanes of
# about the same time.
short_suites_1 := death cluster info attempt errors transfer tls_keys settlement
short_suites_2 := redial living mixed triangle failure
short_suites_3 := tls connect lifecycle move
short_suites_4 := kill
short_lanes := 1 2 3 4
as_suites = $(addsuffix _SUITE,$(1))
left_out := $(filter-out $(call as_suites,$(foreach lane,$(short_lanes),$(short_suites_$(lane)))),\
            $(notdir $(basename $(wildcard test/ct/*/*_SUITE.erl))))
test: deps build ct-modules native-tests ## run the tests of every day, and say what is left out: 10 minutes
	@status=0; scripts/lanes test-short-others -- $(addprefix test-short-,$(short_lanes)) || status=1; \
	printf '%s\n' "" "Not run, make test-all does: virtual machines with RDMA devices, loom, the benchmark harness," \
	  "the ExUnit tests of packages and pages, a second version, and of Common Test" \
	  "$(left_out:_SUITE=)." | fold -s -w 120; exit $$status
$(addprefix test-short-,$(short_lanes)): test-short-%:
	$(MAKE) --no-print-directory test-erlang CT_LOGS=_build/ct/short-$* SUITE="$(call as_suites,$(short_suites_$*))"
test-short-others:
	nice -n 10 $(MAKE) --no-print-directory --keep-going test-rust test-elixir-short

# Several lanes at once, as nodes and machines wait most of the time; only the second lane computes. Each lane of Common
# Test has the suites whose names begin so, about a fourth of their time. The first three lanes have a network; what the
# others need of it is fetched before.
lanes := test-machines test-compute test-project -- $(addprefix test-erlang-,a-d e-m n-rt-z s)
test-all: deps build ct-modules native-tests $(if $(OTP_SUITES),otp-sources) ## run all tests: an hour on two cores
	@scripts/lanes $(lanes) $(if $(MATRIX_SUITES)$(OTP_SUITES),test-others)

# Suites to run on Debian 13's OTP, too; CI does.
MATRIX_SUITES ?=
# OTP's suites to run; by default CI does those of the distribution, and `make test-otp` all.
OTP_SUITES ?=
test-others: $(if $(MATRIX_SUITES),test-matrix) $(if $(OTP_SUITES),test-otp)
# The machines run some of the Rust tests, which are compiled before.
test-machines: test-vm
test-project: test-bench test-elixir test-upgrade
native-tests:
	cd native && cargo test --workspace --exclude inet_rdma_nif --no-run
# At a low priority: the nodes of the other lanes wait for each other, and some bounds are OTP's, as net_setuptime.
test-compute:
	nice -n 10 $(MAKE) --no-print-directory --keep-going test-native bench-instructions
test-matrix:
	$(MAKE) --no-print-directory matrix RELEASES=trixie TARGETS=test-erlang SUITE="$(MATRIX_SUITES)"

# Not the NIF crate: it links only inside a VM, where the Erlang and Elixir tests meet it.
test-rust:
	cd native && cargo test --workspace --exclude inet_rdma_nif --no-fail-fast
test-native: test-rust ## run the Rust tests
	@echo "loom: every interleaving of the shared-memory queue, and of the flight recorder's ring"
	cd native && RUSTFLAGS="--cfg loom" cargo test --profile loom -p inet_rdma_fabric_shm -p inet_rdma_flight --lib \
	  --target-dir $(loom_target) loom

CT_LOGS := _build/ct
all_suites := $(basename $(wildcard test/ct/*/*_SUITE.erl))
# What the suites share. Only what has changed.
ct_support := test/ct/support/built
$(ct_support): $(wildcard test/ct/support/*.erl)
	erlc +debug_info -o test/ct/support $?
	touch $@
test-erlang: build $(ct_support) ## run the Common Test suites (SUITE=name, GROUP=name, CASE=name for one)
	epmd -daemon
	@mkdir -p $(CT_LOGS) && rm -f $(CT_LOGS)/failed
	INET_RDMA_TEST_FAILED=$(abspath $(CT_LOGS))/failed ct_run -noinput -sname inet_rdma_ct_$$$$ \
	  -pa $(ebin) -pa $(call tools_of,$(ebin)) -pa $(CURDIR)/test/ct/support \
	  -logdir $(CT_LOGS) -ct_hooks cth_surefire and inet_rdma_test_failures \
	  -multiply_timetraps 2 -suite $(if $(SUITE),$(filter $(addprefix %/,$(SUITE)),$(all_suites)),$(all_suites)) \
	  $(if $(GROUP),-group $(GROUP)) $(if $(CASE),-case $(CASE)) || \
	  MAKE="$(MAKE)" test/ct/again $(abspath $(CT_LOGS))/failed
test-erlang-%:
	$(MAKE) --no-print-directory test-erlang CT_LOGS=_build/ct/$* \
	  SUITE="$(filter-out upgrade_SUITE,$(notdir $(basename $(wildcard test/ct/*/[$*]*_SUITE.erl))))"

# Common Test compiles only what is older than its source: two runs of it at once compile nothing.
ct-modules: $(ct_support)
	for folder in test/ct/*/; do erlc +debug_info -pa test/ct/support -o $$folder $$folder*.erl || exit; done

# The version that a cluster is upgraded from; nothing has been released yet. Links to nodes of earlier commits stay on
# TCP, as their queue pairs have another protocol version. 77: this clone does not have it, as it has said.
OTHER ?= 7de7a7ce
test-upgrade: build ## run clusters of this version and another one, under cuts (OTHER=COMMIT)
	status=0; version=$$(scripts/other-version $(OTHER)) || status=$$?; \
	case $$status in 77) exit 0 ;; 0) ;; *) exit 1 ;; esac; \
	INET_RDMA_OTHER_VERSION=$$version $(MAKE) --no-print-directory test-erlang CT_LOGS=_build/ct/upgrade \
	  SUITE=upgrade_SUITE

soak: ## run a cluster under traffic and chaos for long (MINUTES=30)
	INET_RDMA_SOAK_MINUTES=$(MINUTES) $(MAKE) test-erlang SUITE=soak_SUITE

certify: deps build ## certify this host: survival, soak, speed and more, as a report (ARGS="--quick", see ARGS=--help)
	$(if $(findstring --quick,$(ARGS)),,scripts/contract _build/certify/contract)
	scripts/certify $(ARGS)

test-rabbitmq: ## cut the connections between three RabbitMQ brokers (SECONDS=120; not in `make test-all`)
	broker=$${INET_RDMA_RABBITMQ:-$$(scripts/rabbitmq _build/rabbitmq)} && \
	INET_RDMA_RABBITMQ=$$broker INET_RDMA_RABBITMQ_SECONDS=$(SECONDS) $(MAKE) test-erlang SUITE=rabbitmq_SUITE

# 77: this machine cannot run them, and has said why. With CI=true that is a failure, and not 77.
otp-sources:
	test/otp/suites --prepare || [ $$? -eq 77 ]
test-otp: build ## run OTP's own suites over inet_rdma (OTP_SUITES=name, ARGS="--beside": all over inet_tcp, too)
	INET_RDMA_EBIN=$(ebin) test/otp/suites $(ARGS) $(OTP_SUITES) || [ $$? -eq 77 ]

# Left out: the exhaustive explorations, which take hours emulated and do not depend on the machine; and what qemu does
# not emulate. It keeps 280 KB of each thread that has ended, and a thousand connections have threads. It answers
# madvise(MADV_REMOVE), which gives pages of shared memory back, with success and does nothing.
not_emulated := explore a_thousand_connections_leave_nothing_behind many_connections_leave_nothing_behind \
                $(addsuffix ::memory_can_be_exposed_again,shm faultless windowing)

test-arm64: ## run the Rust tests of the protocol, connections and shared memory as arm64 programs, emulated
	scripts/deps dist
	scripts/cross aarch64-gnu test -p inet_rdma_stream -p inet_rdma_fabric -p inet_rdma_fabric_shm \
	  -p inet_rdma_assembly -p inet_rdma_engine -p inet_rdma_socket --lib --test behaviour --test contract \
	  --test connection --test socket -- \
	  $(addprefix --skip ,$(not_emulated))

# 77: this machine cannot make the chroots or the VMs, and has said why.
matrix: ## run the suites on OTP 25, 27 and 29, with musl and old glibc, on arm64 (RELEASES="trixie", SUITE=name)
	TARGETS="$(TARGETS)" SUITE="$(SUITE)" scripts/matrix $(RELEASES) || [ $$? -eq 77 ]

# 77: this machine cannot run them, and has said why. With CI=true that is a failure, and not 77.
test-vm: build ## boot two virtual machines with software RDMA devices and test in them (PARTS="contract": see test/vm)
	-scripts/deps vm
	INET_RDMA_EBIN=$(ebin) test/vm/suites $(PARTS) || [ $$? -eq 77 ]
	$(if $(PARTS),,INET_RDMA_EBIN=$(ebin) test/vm/pauses || [ $$? -eq 77 ])

# Those of the library and its tasks, without those that build packages, archives and releases.
test-elixir-short: build
	MIX_ENV=test mix test $(patsubst %,test/elixir/%_test.exs,doctor inet_rdma live_dashboard options_doc stream top)

test-elixir: build ## run the ExUnit tests
	epmd -daemon
	MIX_ENV=test mix test || { test "$${INET_RDMA_TEST_AGAIN:-0}" -gt 0 && \
	  echo "failed: runs again, alone" && MIX_ENV=test mix test --failed && echo "passed when it ran again: ExUnit"; }

# What has failed runs again, alone, as in `make test-elixir`.
bench_tests := cd $(CURDIR)/bench && $(PYTHON) -B -m pytest -q --durations=5 -o cache_dir=../_build/pytest
test-bench: build rdma-perf scale-programs ## run the tests of the benchmark harness
	$(bench_tests) tests || { test "$${INET_RDMA_TEST_AGAIN:-0}" -gt 0 && \
	  echo "failed: runs again, alone" && $(bench_tests) --last-failed tests && \
	  echo "passed when it ran again: the benchmark harness"; }

# What needs no lock of Cargo's comes first: beside the tests those of Rust would wait for clippy.
check: deps check-beam check-scripts dialyzer check-native docs ## run all lints: the same as CI

# A build without the verbs fabric needs neither cmake nor libclang: no crate that needs them may be left. aws-lc-sys
# names the crate cmake, and on these processors builds without the program.
without_verbs := --no-default-features -p inet_rdma_engine -p inet_rdma_socket -p inet_rdma_port -p inet_rdma_nif \
                 -p inet_rdma_cat -p inet_rdma_perf

check-native: ## rustfmt and clippy, with and without the verbs fabric, and that Cargo.lock is up to date
	cd native && cargo metadata --locked --format-version 1 >/dev/null
	cd native && cargo fmt --all --check
	cd native && cargo clippy --workspace --all-targets -- -D warnings
	cd native && tree=$$(cargo tree --locked --edges normal,build --prune aws-lc-sys $(without_verbs)) && \
	  ! printf '%s\n' "$$tree" | grep -E 'inet_rdma_(fabric_)?verbs|rdma-mummy-sys|cmake|bindgen|clang-sys'
	cd native && cargo clippy --all-targets $(without_verbs) -- -D warnings

# In directories of their own and from scratch, as compilers show a warning only when they compile.
check-beam: ## mix format, every Elixir and Erlang warning an error, and the layers of the Erlang modules
	mix format --check-formatted
	MIX_BUILD_PATH=_build/check mix compile --force --warnings-as-errors
	rm -rf _build/check/lib/inet_rdma/inet_rdma_tools
	ERL_COMPILER_OPTIONS=warnings_as_errors scripts/build-tools _build/check/lib/inet_rdma
	scripts/layers $(check_ebin) $(call tools_of,$(check_ebin))
	@mkdir -p _build/check/ct
	erlc +warnings_as_errors -pa $(check_ebin) -pa $(call tools_of,$(check_ebin)) -o _build/check/ct \
	  $(wildcard test/ct/*/*.erl test/vm/ct/*.erl test/otp/*.erl examples/*.erl)
	rebar3 compile

check-scripts: ## shellcheck, ruff, and the rules of scripts/gate
	scripts/deps lint
	scripts/lint
	scripts/gate

# A file that has grown may have two concepts by now.
SINCE = HEAD~50
grown: ## list the source files that have grown most since a commit (SINCE=HEAD~50)
	@git diff --find-renames --numstat $(SINCE) -- '*.rs' '*.erl' '*.ex' '*.exs' '*.py' scripts | \
	  awk '$$1 > $$2 { file = $$0; sub(/^[0-9]+\t[0-9]+\t/, "", file); print $$1 - $$2, file }' | sort -rn | head -n 20

erlang_sources := filelib:wildcard("src/**/*.erl") ++ filelib:wildcard("inet_rdma_tools/src/*.erl")
# edoc:files/2 ends with an error for a comment or a type that it cannot read.
docs: ## render the documentation: native/target/doc, _build/edoc; with the program ex_doc also _build/site
	cd native && RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
	ERL_CRASH_DUMP_SECONDS=0 erl -noinput -boot start_clean -eval \
	  'edoc:files($(erlang_sources), [{dir, "_build/edoc"}, {preprocess, true}]), halt().'
	@if command -v ex_doc >/dev/null; then $(MAKE) site; else \
	  echo "inet_rdma: no site: ex_doc is not in PATH (a release of github.com/elixir-lang/ex_doc has it)"; fi

# ExDoc reads the modules of both applications from one ebin, their documentation from the chunks beside it, and its
# settings from mix.exs.
as_chunks := [{doclet, edoc_doclet_chunks}, {layout, edoc_layout_chunks}]
site: build ## render guides and modules with the program ex_doc: _build/site
	ERL_CRASH_DUMP_SECONDS=0 erl -noinput -boot start_clean -eval \
	  'edoc:files($(erlang_sources), [{dir, "_build/beams/doc"}, {preprocess, true} | $(as_chunks)]), halt().'
	rm -rf _build/beams/ebin
	mkdir _build/beams/ebin
	cp $(ebin)/* $(call tools_of,$(ebin))/*.beam _build/beams/ebin
	mix run --no-compile --no-start -e \
	  'File.write!("_build/ex_doc.exs", inspect(Mix.Project.config()[:docs], limit: :infinity))'
	rm -rf _build/site
	ex_doc inet_rdma "$$(sed -n 's/.*{vsn, "\(.*\)"}.*/\1/p' src/inet_rdma.app.src)" _build/beams/ebin \
	  --config _build/ex_doc.exs --output _build/site --formatter html >_build/ex_doc.log 2>&1; status=$$?; \
	  cat _build/ex_doc.log; test $$status -eq 0 && ! grep -q warning: _build/ex_doc.log

# Not a part of check: Debian has no package of cargo-deny, and to compile it takes five minutes on two cores.
deny: ## check licences, advisories and sources of the crates (cargo install cargo-deny --locked)
	cd native && cargo deny check

dialyzer: ## run Dialyzer over the Erlang and Elixir modules
	scripts/dialyzer $(check_ebin) $(call tools_of,$(check_ebin))

clean: ## remove what was built
	rm -rf _build native/target priv/inet_rdma_nif.so bench/out test/ct/*/*.beam $(ct_support) test/projects/*/_build
