# Real processes under random faults; see internal/check/chaos. Root is needed for some of
# the faults: without it they are left out, and the output says which and why.
# Nothing outlives the test, however it ends, but files in TMPDIR: the kernel ends the
# processes, and with them their mounts, loop devices, namespaces and iptables rules.

CHAOS_MINUTES ?= 30

.PHONY: chaos chaos-short

# make chaos CHAOS_MINUTES=5 CHAOS_SEED=1 CHAOS_ONLY="kill -9,SIGSTOP"
# CHAOS_LOGS=DIR keeps the logs of the nodes when a run fails.
chaos:
	CHAOS_MINUTES='$(CHAOS_MINUTES)' CHAOS_SEED='$(CHAOS_SEED)' CHAOS_ONLY='$(CHAOS_ONLY)' \
		go test -count=1 -v -timeout 24h -run '^TestChaos$$' ./internal/check/chaos

chaos-short:
	CHAOS_SEED='$(CHAOS_SEED)' CHAOS_ONLY='$(CHAOS_ONLY)' \
		go test -count=1 -v -short -run '^TestChaos$$' ./internal/check/chaos

# Nodes change between the previous release and this version at random, while they are
# killed and stopped as well. Needs the history of the repository.
#
# make upgrade-storm UPGRADE_MINUTES=10 UPGRADE_SEED=1

UPGRADE_MINUTES ?= 1

.PHONY: upgrade-storm

upgrade-storm:
	UPGRADE_MINUTES='$(UPGRADE_MINUTES)' UPGRADE_SEED='$(UPGRADE_SEED)' \
		go test -count=1 -v -timeout 24h -run '^TestUpgrade_NoWrongAnswerInAStorm$$' ./internal/check/chaos

# Package disruptor beside channels; see docs/disruptor.md.

DISRUPTOR_ROUNDS ?= 9
DISRUPTOR_TIME ?= 200ms

.PHONY: bench-disruptor

bench-disruptor:
	bench/disruptor.sh '$(DISRUPTOR_ROUNDS)' '$(DISRUPTOR_TIME)'

# Package snowflake, alone and beside another generator; see docs/snowflake.md.

SNOWFLAKE_ROUNDS ?= 9
SNOWFLAKE_TIME ?= 200ms

.PHONY: bench-snowflake

bench-snowflake:
	bench/snowflake/run.sh '$(SNOWFLAKE_ROUNDS)' '$(SNOWFLAKE_TIME)'
