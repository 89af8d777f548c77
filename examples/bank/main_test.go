package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/memory"
)

// timestamps is an oracle in this process.
type timestamps struct{ last atomic.Uint64 }

// Timestamp64 implements txn.Oracle.
func (t *timestamps) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	now := uint64(isotone.NewTimestamp64(uint64(time.Now().UnixMilli()), 0))
	for {
		last := t.last.Load()
		next := max(now, last+1)
		if t.last.CompareAndSwap(last, next) {
			return isotone.Timestamp64(next), ctx.Err()
		}
	}
}

// lossy is a store that sometimes answers that it has done a write, and has not.
type lossy struct{ txn.Store }

func (l lossy) Write(ctx context.Context, key []byte, c txn.Change) (bool, error) {
	if c.Put.Commit != 0 && rand.IntN(20) == 0 {
		return true, nil
	}
	return l.Store.Write(ctx, key, c)
}

func newBank(out io.Writer, duration time.Duration) *bank {
	return &bank{
		settings: settings{accounts: 10, workers: 4, duration: duration, kill: true},
		oracle:   &timestamps{},
		stores:   stores{placeRedis: memory.New(), placePostgres: memory.New()},
		out:      out,
	}
}

func TestBank_KeepsTotalWhileClientsDie(t *testing.T) {
	var out bytes.Buffer
	b := newBank(&out, 3*time.Second)
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Log(b.status())
	c := &b.counts
	if c.transfers.Load() == 0 || c.audits.Load() == 0 || c.clients.Load() == 0 || c.failed.Load() > 0 {
		t.Errorf("no load, or failures: %s", b.status())
	}
	if !strings.HasSuffix(out.String(), "The total was always 1000.\n") {
		t.Errorf("output: %s", out.String())
	}
}

func TestBank_NoticesLostWrites(t *testing.T) {
	b := newBank(io.Discard, 30*time.Second)
	b.kill = false
	b.stores[placePostgres] = lossy{b.stores[placePostgres]}
	if err := b.run(t.Context()); !errors.Is(err, errTotal) {
		t.Errorf("with a store that loses writes: %v; %s", err, b.status())
	}
}

func TestLine_CutLosesAnswers(t *testing.T) {
	inner := memory.New()
	ctx := t.Context()
	for n, reaches := range map[uint64]bool{2: false, 3: true} {
		l := &line{}
		store := l.through(stores{"s": inner})["s"]
		l.cutAfter(1)
		key := []byte{byte(n)}
		if ok, err := store.Write(ctx, key, txn.Change{Next: n, Lock: []byte("l")}); ok || !errors.Is(err, errCut) {
			t.Errorf("the write at which the line is cut: %v, %v", ok, err)
		}
		if _, _, err := store.Read(ctx, key, 1, 1); !errors.Is(err, errCut) {
			t.Errorf("a read after the cut: %v", err)
		}
		if row, _, err := inner.Read(ctx, key, 1, 1); err != nil || (row.Revision != 0) != reaches {
			t.Errorf("a write with revision %d has left %+v, %v", n, row, err)
		}
	}
}

func TestRun_RefusesBadFlags(t *testing.T) {
	for _, args := range []string{
		"",
		"--redis localhost:6379",
		"--memory --redis localhost:6379",
		"--memory --accounts 1",
		"--memory --workers 0",
		"--memory --duration 1ms",
		"--memory --isotone localhost:8080 --binary isotone",
		"--memory more",
		"--unknown",
	} {
		if code := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); code != exitUsage {
			t.Errorf("%q: exit code %d, want %d", args, code, exitUsage)
		}
	}
	if code := run(t.Context(), []string{"--help"}, io.Discard, io.Discard); code != 0 {
		t.Errorf("--help: exit code %d", code)
	}
}

// TestRun_SurvivesLeaders runs the program with three nodes. ISOTONE_BINARY names the isotone program;
// without it, it is built.
func TestRun_SurvivesLeaders(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts nodes; not in short mode")
	}
	args := []string{"--memory", "--kill", "--duration", "12s", "--accounts", "20"}
	if binary := os.Getenv("ISOTONE_BINARY"); binary != "" {
		args = append(args, "--binary", binary)
	}
	var out, progress bytes.Buffer
	if code := run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &out, &progress)
	}
	if !strings.Contains(out.String(), "leaders killed") {
		t.Errorf("no leader was killed:\n%s", &out)
	}
	t.Log(out.String())
}
