package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/host/backup"
)

// TestRestore_RefusesAnotherLayoutOfIDs, as recover does: the new cluster would never make an ID.
func TestRestore_RefusesAnotherLayoutOfIDs(t *testing.T) {
	now := time.Now()
	state := oracle.State{
		ClusterID: 7, Level: oracle.LevelNewest, Ceiling: uint64(now.UnixNano()), Members: []oracle.Member{{ID: 1}},
		Space: oracle.Space{TimeBits: 41, WorkerBits: 10, SequenceBits: 12, Epoch: 1_700_000_000_000},
	}
	d := backup.Document{ClusterID: "0000000000000007", Level: oracle.LevelNewest, Ceiling: state.Ceiling, State: state.Append(nil), Taken: now}
	d.Seal()
	path, dir := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "data")
	if err := backup.Write(path, d.Encode(), false, nil); err != nil {
		t.Fatal(err)
	}
	const want = "set SNOWFLAKE_LAYOUT=41/10/12 and SNOWFLAKE_EPOCH_MS=1700000000000"
	layout, epoch := "--snowflake-layout=41/10/12", "--snowflake-epoch-ms=1700000000000"
	for _, wrong := range [][]string{nil, {layout}, {epoch}} {
		wantRun(t, exitUsage, "", want, append([]string{"restore", "--data-dir", dir, "--yes", path}, wrong...)...)
		if seed, err := backup.ReadSeed(dir); seed != nil || err != nil {
			t.Errorf("%+v, %v", seed, err)
		}
	}
	restored(t, dir, path, layout, epoch)
	recover := []string{"recover", "--force-new-cluster", "--data-dir", dir, "--yes"}
	wantRun(t, exitUsage, "", want, recover...)
	wantRun(t, 0, "is ready to form", "", append(recover, layout, epoch)...)
}
