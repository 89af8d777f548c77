package boltstore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/boltstore"
	"github.com/isotone/isotone/txn/internal/storecheck"
)

// acknowledged is what the traced process writes to its standard error after each commit.
const acknowledged = "=== acknowledged"

// commitTraced is the traced process: it commits transactions until one fails, with a timeout for calls of the
// store that is shorter than a commit with delayed syncs takes.
func commitTraced(path string, commits int) error {
	file, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	defer file.Close()
	store, err := boltstore.Open(file, boltstore.Options{Name: "a"})
	if err != nil {
		return err
	}
	defer store.Close()
	db, err := txn.New(&storecheck.Oracle{}, txn.Options{
		Stores: map[string]txn.Store{"a": store}, CallTimeout: 100 * time.Millisecond, FinishTimeout: 4 * time.Second, BackgroundMax: -1,
	})
	if err != nil {
		return err
	}
	defer db.Close()
	for i := range commits {
		tx, err := db.Begin(context.Background())
		if err != nil {
			return err
		}
		if err := tx.Set("a", []byte("k"), fmt.Append(nil, i)); err != nil {
			return err
		}
		if err := tx.Commit(context.Background()); err != nil {
			break
		}
		fmt.Fprintln(os.Stderr, acknowledged)
	}
	return nil
}

// trace runs commitTraced under strace, which tampers with fdatasync, and returns the lines of its log.
func trace(t *testing.T, inject string, commits int) []string {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace to tamper with fdatasync (Debian: strace)")
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	cmd := exec.Command("strace", "-f", "-o", log, "-e", "trace=fdatasync,write", "-e", "inject=fdatasync:"+inject,
		os.Args[0], "-test.run=^TestCommit_IsTraced$")
	cmd.Env = append(os.Environ(), "BOLTSTORE_TRACED="+filepath.Join(dir, "file"), fmt.Sprint("BOLTSTORE_COMMITS=", commits))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("strace: %v\n%s", err, out)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// TestCommit_IsTraced is the traced process.
func TestCommit_IsTraced(t *testing.T) {
	path := os.Getenv("BOLTSTORE_TRACED")
	if path == "" {
		t.Skip("the process that other tests trace")
	}
	commits, err := strconv.Atoi(os.Getenv("BOLTSTORE_COMMITS"))
	if err != nil {
		t.Fatal(err)
	}
	if err := commitTraced(path, commits); err != nil {
		t.Fatal(err)
	}
}

func TestCommit_IsAcknowledgedAfterTheSync(t *testing.T) {
	syncs, acks, underWay := 0, 0, 0
	for _, line := range trace(t, "delay_enter=200000", 3) {
		switch {
		case strings.Contains(line, "fdatasync(") && strings.Contains(line, "<unfinished"):
			syncs++
			underWay++
		case strings.Contains(line, "fdatasync resumed>"):
			underWay--
		case strings.Contains(line, "fdatasync("):
			syncs++
		case strings.Contains(line, "write(") && strings.Contains(line, acknowledged):
			acks++
			if underWay > 0 {
				t.Error("a commit was acknowledged during an fdatasync")
			}
		}
	}
	if acks == 0 || syncs < 2*acks {
		t.Errorf("%d commits were acknowledged, after %d fdatasyncs", acks, syncs)
	}
}

func TestCommit_IsNotAcknowledgedAfterAFailedSync(t *testing.T) {
	// Opening takes three syncs. strace counts those of each thread by themselves.
	acks, failed := 0, 0
	for _, line := range trace(t, "error=EIO:when=4", 1000) {
		switch {
		case strings.Contains(line, "(INJECTED)"):
			failed++
		case strings.Contains(line, "write(") && strings.Contains(line, acknowledged):
			acks++
			if failed > 0 {
				t.Error("a commit was acknowledged after an fdatasync has failed")
			}
		}
	}
	if failed == 0 {
		t.Errorf("%d fdatasyncs have failed, and %d commits were acknowledged", failed, acks)
	}
}
