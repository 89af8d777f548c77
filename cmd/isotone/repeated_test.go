package main

import (
	"path/filepath"
	"testing"
)

// TestUsage_AFlagIsGivenOnce, unless its values add up. What the environment says of it does not count.
func TestUsage_AFlagIsGivenOnce(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for _, args := range [][]string{
		{"init", "--data-dir", one, "--data-dir", two},
		{"init", "--data-dir=" + one, "--data-dir=" + one},
		{"restore", "backup", "--floor", "1", "--floor", "2"},
		{"restore", "backup", "-y", "--yes"},
		{"serve", "--node-id=1", "--node-id=2"},
	} {
		wantRun(t, exitUsage, "", "is given twice", args...)
	}
	t.Setenv("DATA_DIR", one)
	wantRun(t, 0, two+" is ready", "", "init", "--data-dir", two)
	a := closedAddr(t)
	wantRun(t, exitFailure, "", a, "member", "list", "--endpoint", a, "--endpoint", closedAddr(t), "--timeout", "1ms")
}
