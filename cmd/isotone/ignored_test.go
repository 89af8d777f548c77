package main

import "testing"

// TestUsage_NoInputIsIgnored: what a command cannot do as it was told, it refuses before it does anything.
func TestUsage_NoInputIsIgnored(t *testing.T) {
	for want, args := range map[string][]string{
		"--endpoint and --data-dir can't be used together": {"backup", "file", "--endpoint", "localhost:1", "--data-dir", t.TempDir()},
		"--wait needs --voter":                             {"member", "add", "4", "localhost:1", "--wait", "1s"},
		"--wait -1s: want 0s or more":                      {"member", "add", "4", "localhost:1", "--voter", "--wait=-1s"},
		"--wait -5m0s: want 0s or more":                    {"member", "replace", "4", "localhost:1", "--wait=-5m"},
		"--wait -2s: want 0s or more":                      {"member", "reconcile", "--replicas", "3", "--peer-addr", "pod-{ordinal}:1", "--wait=-2s"},
		"0 is the NODE_ID of no node":                      {"leader", "transfer", "0"},
	} {
		wantRun(t, exitUsage, "", want, args...)
	}
	for _, args := range [][]string{{"--name", "A"}, {"--days", "3"}, {"--overwrite"}} {
		wantRun(t, exitUsage, "", "--retire makes no authority", append([]string{"cert", "ca", "--retire"}, args...)...)
	}
}
