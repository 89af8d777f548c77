# "make help" lists the targets. What CI checks is in .ci/run; the targets below call its
# steps, so there is one definition of each.

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

##

# Without cgo the binary is static: it needs no file, and runs in an empty container. With a C
# compiler at hand, a plain "go build" links the resolver of the system's C library.
.PHONY: build install install-live
build: ## ./isotone, a static binary
	CGO_ENABLED=0 go build -o isotone ./cmd/isotone

install: ## the same, where go install puts it
	CGO_ENABLED=0 go install ./cmd/isotone

install-live: ## isotone-live, for live documents in MongoDB and PostgreSQL
	cd adapters/livestores && CGO_ENABLED=0 go install ./cmd/isotone-live

# make release VERSION=v1.2.3 RELEASE_KEY=~/.ssh/id_ed25519
.PHONY: release
release: ## binaries, packages, image, checksums and signature of VERSION in dist; see docs/release.md
	release/build.sh '$(VERSION)' dist

export RELEASE_KEY

# The parts with packages need root. fresh-root needs it, too, Debian's package debootstrap, and some
# minutes.
#
# make fresh-root FRESH_ARGS='--short ./client ./snowflake'
.PHONY: release-check fresh-root
release-check: ## build a release twice, verify it, and install, upgrade and remove its packages
	release/check.sh

fresh-root: ## the first two commands of README.md on a minimal Debian with Go and nothing else: FRESH_ARGS
	release/fresh-root.sh $(FRESH_ARGS)

.PHONY: ci test flakes flakes-totals helm lint proof spec-search race sim mutants mutant-seeds
ci: ## everything a change has to pass
	.ci/run

test: ## all tests
	.ci/run test

# make flakes COUNT=10 FLAKES='./client ./internal/node' RUN='TestSearch' RACE=1
# make flakes HOURS=2 FLAKES=./...
flakes: ## tests that fail now and then: FLAKES (packages) COUNT (30) times beside two busy loops, or for HOURS
	COUNT='$(COUNT)' RUN='$(RUN)' RACE='$(RACE)' HOURS='$(HOURS)' .ci/flakes $(FLAKES)

flakes-totals: ## how often each package ran that way in the present state, and how often it failed
	@go run ./internal/check/evidence/record flakes totals $(if $(RACE),-race)

helm: ## the Helm chart: lint, golden files, schemas
	.ci/run helm

lint: ## vet, gofmt, staticcheck and, if installed, codespell
	.ci/run lint

proof: ## the proof of order and uniqueness; needs dafny and z3
	spec/proof/check.sh

spec-search: ## every state that the specification permits in clusters of small sizes; takes a quarter of an hour
	SEARCH=full go test -count=1 -v -timeout 5h ./spec/search

race: ## the race detector over the packages with goroutines
	.ci/run race

# make sim SIM_RUNS=1 SIM_SEED=42
sim: ## simulated clusters: SIM_RUNS (2000, or 500 of a core that is recorded) runs from SIM_SEED (0)
	.ci/run sim

export SIM_RUNS SIM_SEED

.PHONY: record-sim record-fuzz
record-sim: ## the same as sim, and record it in docs/evidence
	go run ./internal/check/evidence/record sim --seed $(or $(SIM_SEED),0) --runs $(or $(SIM_RUNS),2000)

# make record-fuzz FUZZ='./internal/front/head FuzzHead'
record-fuzz: ## COUNT (10000000) executions of FUZZ (package and target), and record it in docs/evidence
	.ci/fuzz $(FUZZ)

export COUNT

mutants: ## every deliberate bug is noticed, by the simulator or by a directed test
	.ci/run mutants

mutant-seeds: ## record for each deliberate bug whose seed is stale a simulator seed that notices it, some minutes
	go test -tags mutants -run Mutants -timeout 0 ./internal/core/sim -update

# Python's packages go into SITE_CACHE (~/.cache/isotone-site). REPOSITORY and BRANCH say where links to
# code lead.
SITE_DIR ?= _site

.PHONY: site site-check
site: ## the documentation as a website with search, in SITE_DIR (_site); dead links are errors
	REPOSITORY='$(or $(REPOSITORY),https://github.com/isotone/isotone)' BRANCH='$(or $(BRANCH),main)' site/build.sh '$(SITE_DIR)'

site-check: ## the same, and a browser looks at every page
	.ci/run site

# make fuzz FUZZ_PACKAGE=./internal/front/resp FUZZ_TARGET=FuzzParse FUZZ_TIME=1m
FUZZ_PACKAGE ?= .
FUZZ_TARGET ?= Fuzz
FUZZ_TIME ?= 10s

.PHONY: fuzz
fuzz: ## fuzz targets, FUZZ_TIME (10s) each: FUZZ_TARGET in FUZZ_PACKAGE, by default all
	@grep -rHo --include='*_test.go' '^func $(FUZZ_TARGET)[A-Za-z0-9_]*' '$(FUZZ_PACKAGE)' | sort | \
		while IFS=: read -r file func; do \
			go test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime '$(FUZZ_TIME)' "./$${file%/*}" </dev/null || exit 1; \
		done

# make bench BENCH_PACKAGE=./internal/front/resp BENCH=Parse
BENCH_PACKAGE ?= ./...
BENCH ?= .

.PHONY: bench bench-disruptor bench-latency bench-snowflake
bench: ## benchmarks: those that match BENCH in BENCH_PACKAGE, by default all
	go test -run '^$$' -bench '$(BENCH)' -benchmem '$(BENCH_PACKAGE)'

DISRUPTOR_ROUNDS ?= 9
DISRUPTOR_TIME ?= 200ms

bench-disruptor: ## package disruptor beside channels and go-disruptor; see disruptor/README.md
	bench/disruptor.sh '$(DISRUPTOR_ROUNDS)' '$(DISRUPTOR_TIME)'

bench-latency: ## latencies of a ring, a channel and go-disruptor at a constant rate
	bench/disruptor.sh latency

SNOWFLAKE_ROUNDS ?= 9
SNOWFLAKE_TIME ?= 200ms

bench-snowflake: ## package snowflake, alone and beside another generator; see docs/snowflake.md
	bench/snowflake/run.sh '$(SNOWFLAKE_ROUNDS)' '$(SNOWFLAKE_TIME)'

# make clients-bench CLIENTS='go rust'
# make clients-mutants CLIENT=rust
.PHONY: clients clients-bench clients-mutants clients-storm
clients: ## the clients in other languages: their own checks, and the conformance kit
	.ci/run clients

clients-mutants: ## deliberate bugs of the clients in other languages, each noticed by a scenario of the kit: CLIENT (all of them)
	go test -tags mutants -count=1 -timeout 40m -parallel 6 -run 'OtherLanguages/^$(CLIENT)' ./clients/go

clients-bench: ## 1,000 callers of each client, and a lone call beside a bare socket: CLIENTS (all languages)
	bench/clients.sh $(CLIENTS)

# make clients-storm CLIENTS=rust ROLLS=10 KILLS=20
clients-storm: ## ROLLS (100) rolling restarts and KILLS (50) kills while CLIENTS (all languages) call with deadlines of DEADLINE (2s)
	ROLLS='$(ROLLS)' KILLS='$(KILLS)' DEADLINE='$(DEADLINE)' bench/clients-storm.sh $(CLIENTS)

# make interop INTEROP=ioredis
#
# Libraries are installed into INTEROP_DIR (~/.cache/isotone-interop). Tools that are missing are
# skipped by name.
INTEROP ?= all

.PHONY: interop
interop: ## clients of other projects against three nodes: INTEROP (all), quick or names
	interop/run.sh $(INTEROP)

# isotone verify on systems of which is known whether they are right: this one, with deliberate bugs as well, and others.
#
# make verify VERIFY='mutant/*' VERIFY_MINUTES=2; RECORD=1 adds lines to docs/evidence/storms.csv
VERIFY_MINUTES ?= 10

.PHONY: verify
verify: ## isotone verify on right and wrong systems, VERIFY (all) by name, VERIFY_MINUTES (10) each at most
	go run ./bench/verify -minutes '$(VERIFY_MINUTES)' -only '$(or $(VERIFY),*)'

# Real processes under random faults; see internal/check/chaos. Some faults need root:
# without it they are skipped, and the output says which and why. Nothing outlives the test,
# however it ends, except files in TMPDIR: the kernel ends the processes, and with them their
# mounts, loop devices, namespaces and iptables rules.
#
# make chaos CHAOS_MINUTES=5 CHAOS_SEED=1 CHAOS_ONLY="kill -9,SIGSTOP"
# CHAOS_LOGS=DIR keeps the logs and protocol traces of the nodes when a run fails. RECORD=1 adds a line to the ledger
# docs/evidence/storms.csv, also for the storms below.
CHAOS_MINUTES ?= 30

.PHONY: chaos chaos-short upgrade-storm member-storm member-steps
chaos: ## real processes under random faults for CHAOS_MINUTES (30)
	CHAOS_MINUTES='$(CHAOS_MINUTES)' CHAOS_SEED='$(CHAOS_SEED)' CHAOS_ONLY='$(CHAOS_ONLY)' \
		go test -count=1 -v -parallel 1 -timeout 24h -run '^TestChaos$$' ./internal/check/chaos

chaos-short: ## the same, one short storm, as "go test" runs it
	CHAOS_SEED='$(CHAOS_SEED)' CHAOS_ONLY='$(CHAOS_ONLY)' \
		go test -count=1 -v -run '^TestChaos$$' ./internal/check/chaos

# Nodes change between this version and one to come at random, while they are
# killed and stopped as well.
#
# make upgrade-storm UPGRADE_MINUTES=10 UPGRADE_SEED=1
UPGRADE_MINUTES ?= 1

upgrade-storm: ## nodes of two versions under faults for UPGRADE_MINUTES (1)
	UPGRADE_MINUTES='$(UPGRADE_MINUTES)' UPGRADE_SEED='$(UPGRADE_SEED)' \
		go test -count=1 -v -parallel 1 -timeout 24h -run '^TestUpgrade_NoWrongAnswerInAStorm$$' ./internal/check/upgrade

# Members are replaced, added, removed, moved and restarted, and leaders are killed within the
# commands that do it, all under a load of the Go client with deadlines of 2 s: about nine
# minutes. Each number is how often; "go test" does the same for half a minute.
#
# make member-storm MEMBER_REPLACEMENTS=100 MEMBER_KILLS=1000 MEMBER_SEED=1
MEMBER_REPLACEMENTS ?= 20
MEMBER_GROWTHS ?= 10
MEMBER_MOVES ?= 5
MEMBER_ROLLS ?= 100
MEMBER_KILLS ?= 200

member-storm: ## changes of membership under load, about nine minutes
	MEMBER_REPLACEMENTS='$(MEMBER_REPLACEMENTS)' MEMBER_GROWTHS='$(MEMBER_GROWTHS)' MEMBER_MOVES='$(MEMBER_MOVES)' \
	CALL_DEADLINE=2s MEMBER_ROLLS='$(MEMBER_ROLLS)' MEMBER_KILLS='$(MEMBER_KILLS)' MEMBER_SEED='$(MEMBER_SEED)' \
		go test -count=1 -v -parallel 1 -timeout 24h -run '^TestMember_' ./internal/check/membership

# Holders of locks, writers of groups and leaders are stopped and killed for FENCE_MINUTES, and the fences of a Redis and a
# Postgres, which the storm starts, may let no late write through; see fence/internal/storm. An hour must have 1,000 writes fenced.
#
# make fence-storm FENCE_MINUTES=10
FENCE_MINUTES ?= 60

.PHONY: fence-storm
fence-storm: ## late writes at the fences of Redis and Postgres, for FENCE_MINUTES (60)
	cd fence && CI=true FENCE_MINUTES='$(FENCE_MINUTES)' \
		go test -count=1 -v -timeout 24h -run '^TestFenceStorm$$' ./internal/storm

# Leaders are killed, stopped, cut off, ended and replaced, in clusters of all kinds, FAILOVER_EVENTS
# times each, and it is measured how long no request is answered: about two hours on an idle machine.
# Then the cluster runs beside busy loops for FAILOVER_MINUTES. FAILOVER_KINDS selects by names, as
# in "kill,stop*,client-*,stability"; docs/failover.md lists them. The report is written to
# FAILOVER_DIR: failover.md, failover.json, failover.svg. FAILOVER_STRICT=1 fails if a target is
# missed. Ctrl-C ends it after the current event, with a report of what was measured.
#
# make failover FAILOVER_EVENTS=10 FAILOVER_KINDS='kill,kill-busy,term'
FAILOVER_EVENTS ?= 100
FAILOVER_MINUTES ?= 30
FAILOVER_DIR ?= failover

.PHONY: failover
failover: ## how long a failover takes: FAILOVER_EVENTS (100) of each of FAILOVER_KINDS (all)
	FAILOVER_EVENTS='$(FAILOVER_EVENTS)' FAILOVER_KINDS='$(FAILOVER_KINDS)' FAILOVER_MINUTES='$(FAILOVER_MINUTES)' \
	FAILOVER_DIR='$(abspath $(FAILOVER_DIR))' FAILOVER_STRICT='$(FAILOVER_STRICT)' \
		go test -count=1 -v -parallel 1 -timeout 24h -run '^TestFailover_Report$$' ./internal/check/failover

# The leader, the node concerned, and the command itself are killed at every step of every command
# that changes members or the leadership. "go test" does that at one step of each.
#
# make member-steps MEMBER_STEPS_ONLY="replace,transfer"
member-steps: ## kill -9 at every step of a change of membership, a quarter of an hour
	CALL_DEADLINE=2s MEMBER_STEPS=all MEMBER_STEPS_ONLY='$(MEMBER_STEPS_ONLY)' \
		go test -count=1 -v -parallel 1 -timeout 24h -run '^TestMemberSteps_' ./internal/check/membership

# 1,000 connections of hostile clients of one kind after the other, beside a client with
# credentials: 0 of its calls may fail, and 80 % of its rate have to remain, by the median of
# HOSTILE_ROUNDS of HOSTILE_SECONDS each, without and with the others in turns; below that, of up
# to three times as many. At the end all kinds attack at once. About ten minutes; "go test" does only that, without a bound on the rate.
# With HOSTILE_UNPACED=1 hostile clients go as fast as they can.
#
# make hostile-storm HOSTILE_ONLY="MULTI queues,UDP garbage" HOSTILE_PAUSE=2000
HOSTILE_SECONDS ?= 3
HOSTILE_ROUNDS ?= 3
HOSTILE_NODES ?= 3

.PHONY: hostile-storm
hostile-storm: ## hostile clients of every kind beside a good one, about ten minutes
	CALL_DEADLINE=2s HOSTILE_SECONDS='$(HOSTILE_SECONDS)' HOSTILE_ROUNDS='$(HOSTILE_ROUNDS)' HOSTILE_ONLY='$(HOSTILE_ONLY)' HOSTILE_PAUSE='$(HOSTILE_PAUSE)' HOSTILE_NODES='$(HOSTILE_NODES)' HOSTILE_UNPACED='$(HOSTILE_UNPACED)' \
		go test -count=1 -v -parallel 1 -timeout 24h -run '^TestHostile_' ./internal/check/service
