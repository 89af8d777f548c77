package storage_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/host/storage"
)

// script is a sequence of Saves with every kind of write.
func script() []storage.Write {
	return []storage.Write{
		{Entries: entries(1, 30, 1), HardState: hardState(1, 7, 10)},
		{ClusterID: 5},
		{Compact: snapshot(8, 1, "compacted")},
		{Entries: entries(20, 200, 2), HardState: hardState(2, 1, 19)},
		{HardState: hardState(3, 2, 150)},
		{Compact: snapshot(150, 2, "compacted again")},
		{Snapshot: snapshot(300, 4, "from the leader")},
		{Entries: entries(301, 303, 4), HardState: hardState(4, 2, 302)},
	}
}

const victimDir = "STORAGE_TEST_VICTIM_DIR"

// TestVictim is not a test: it is the process that the next test kills. It saves entries
// without end and prints the index of each.
func TestVictim(t *testing.T) {
	dir := os.Getenv(victimDir)
	if dir == "" {
		t.Skip("only runs as a child of TestStore_KeepsWhatAKilledProcessAcknowledged")
	}
	s, r := open(t, options(dir))
	index := r.HardState.GetCommit()
	if n := len(r.Entries); n > 0 {
		index = r.Entries[n-1].GetIndex()
	}
	for {
		index++
		w := storage.Write{Entries: []*raftpb.Entry{entry(index, 1, "data")}, HardState: hardState(1, 1, index)}
		if index%20 == 0 {
			w.Compact = snapshot(index, 1, "state")
		}
		save(t, s, w)
		fmt.Println("saved", index)
	}
}

func TestStore_KeepsWhatAKilledProcessAcknowledged(t *testing.T) {
	dir := t.TempDir()
	for kill := range 3 {
		acknowledged := runVictim(t, dir, 15+9*kill)
		s, r := open(t, options(dir))
		last := r.Snapshot.GetMetadata().GetIndex() + uint64(len(r.Entries))
		if last != acknowledged && last != acknowledged+1 {
			t.Fatalf("acknowledged %d, recovered %d", acknowledged, last)
		}
		if r.HardState.GetCommit() != last {
			t.Fatalf("commit %d of %d", r.HardState.GetCommit(), last)
		}
		closeStore(t, s)
	}
}

// runVictim starts a victim, kills it after a number of Saves, and returns the last index that
// it acknowledged.
func runVictim(t *testing.T, dir string, saves int) (acknowledged uint64) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(os.Args[0], "-test.run=^TestVictim$")
	cmd.Env = append(os.Environ(), victimDir+"="+dir)
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, seen := bufio.NewScanner(out), 0
	for lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "saved %d", &acknowledged); err == nil {
			seen++
		}
		if seen == 1 {
			if _, _, err := storage.Open(options(dir)); !errors.Is(err, storage.ErrInUse) {
				t.Errorf("Open while another process has it: %v", err)
			}
		}
		if seen == saves {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	if seen < saves {
		t.Fatalf("the victim ended after %d saves: %s", seen, stderr.String())
	}
	return acknowledged
}
