// Package storm breaks processes that write under locks and in groups, and the leader that grants them, and checks that the fences of a real Redis and a real Postgres let no late
// write through. Only its tests use it: "go test" runs a storm of seconds, "make fence-storm" one of an hour.
//
// Three nodes and some workers run as processes. A worker ([Work]) takes locks and writes under their tokens, and writes in groups, to both stores; it never looks whether it still
// holds what it writes under. Workers and the leader are stopped (SIGSTOP) for up to 3 s, longer than a session lives, and killed now and then. A reader is told the frontiers of
// the groups.
//
// It checks that a store accepts nothing under a token after a later one has written, and nothing at or below a frontier once that was told; and that after the last fault all locks are
// granted, all frontiers move and all stores are written to. A history is that of a round of a minute, with locks and groups of its own.
package storm
