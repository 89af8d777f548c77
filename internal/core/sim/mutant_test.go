//go:build mutants

package sim_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/check/child"
	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/sim"
)

var update = flag.Bool("update", false, "write the seeds that notice each bug to "+seedsFile)

// seedsFile has a line "NAME SEED" for each bug that the simulator notices, with a seed that
// notices it. That seed is tried first, which saves the search. A change of the core or of the
// simulator changes what seeds mean; -update then writes the file anew.
var seedsFile = filepath.Join("testdata", "mutant_seeds.txt")

// ofClients are the bugs of clients that do lasting harm, which the simulator has to notice, too; internal/core/search
// notices all of them.
var ofClients = []mutant.Mutant{mutant.IgnoreMoved, mutant.NeverSuspect, mutant.ForgetMembers, mutant.NeverRefresh, mutant.CarryNoFloor}

// TestMutants_AreAllNoticed wants the simulator to notice each deliberate bug. A process of its
// own searches for each, because the switch is global. ISOTONE_MUTANT names a single
// bug, ISOTONE_SEEDS ("FROM-TO") the seeds to search after the recorded one.
func TestMutants_AreAllNoticed(t *testing.T) {
	recorded := readSeeds(t)
	if only := os.Getenv("ISOTONE_MUTANT"); only != "" {
		m, ok := mutantNamed(only)
		if !ok {
			t.Fatalf("ISOTONE_MUTANT=%s: there is no such bug", only)
		}
		search(t, m, recorded)
		return
	}
	test, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	noticedBy := make(map[string]uint64)
	t.Run("each", func(t *testing.T) {
		for _, m := range mutant.All() {
			if m.IsDirected() || m.IsOfTable() || m.IsOfFrontier() || m.IsOfSession() || m.IsOfClient() && !slices.Contains(ofClients, m) {
				continue
			}
			t.Run(m.String(), func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(test, "-test.run=^TestMutants_AreAllNoticed$", "-test.v", "-test.timeout=0")
				cmd.Env = append(os.Environ(), "ISOTONE_MUTANT="+m.String(), "GOMAXPROCS=1")
				var buf bytes.Buffer
				cmd.Stdout, cmd.Stderr = &buf, &buf
				err := child.Start(cmd) // it does not outlive this process
				if err == nil {
					err = cmd.Wait()
				}
				out := buf.Bytes()
				if err != nil {
					t.Fatalf("%v: %v\n%s", cmd, err, out)
				}
				_, found, _ := bytes.Cut(out, []byte("noticed by seed "))
				found, _, _ = bytes.Cut(found, []byte("\n"))
				seed, violation, _ := strings.Cut(string(found), ": ")
				n, err := strconv.ParseUint(seed, 10, 64)
				if err != nil {
					t.Fatalf("%v printed no seed:\n%s", cmd, out)
				}
				t.Logf("seed %d: %s", n, violation)
				mu.Lock()
				noticedBy[m.String()] = n
				mu.Unlock()
			})
		}
	})
	if *update && !t.Failed() {
		seeds := maps.Clone(recorded) // -run may have selected some only
		maps.Copy(seeds, noticedBy)
		writeSeeds(t, seeds)
		return
	}
	stale := 0
	for name, seed := range noticedBy {
		if recorded, ok := recorded[name]; !ok || recorded != seed {
			stale++
		}
	}
	if stale > 0 {
		t.Logf("%d recorded seeds no longer notice their bug, and were searched for: run make mutant-seeds", stale)
	}
}

// search switches the bug on and wants a seed to notice it: the recorded one, or the first
// of the range.
func search(t *testing.T, m mutant.Mutant, recorded map[string]uint64) {
	from, to := seedRange(t)
	mutant.Switch(m)
	defer mutant.Switch(mutant.None)
	if seed, ok := recorded[m.String()]; ok && report(t, seed) {
		return
	}
	for seed := from; seed < to; seed++ {
		if report(t, seed) {
			return
		}
	}
	t.Errorf("%v was not noticed by the seeds from %d to %d", m, from, to)
}

// report runs a seed, and reports and logs whether it notices the bug.
func report(t *testing.T, seed uint64) bool {
	v := sim.Run(sim.Options{Seed: seed, Lease: true}).Violation
	if v != nil {
		t.Logf("noticed by seed %d: %.120v", seed, v)
	}
	return v != nil
}

func mutantNamed(name string) (mutant.Mutant, bool) {
	for _, m := range mutant.All() {
		if m.String() == name {
			return m, true
		}
	}
	return mutant.None, false
}

func readSeeds(t *testing.T) map[string]uint64 {
	t.Helper()
	file, err := os.ReadFile(seedsFile)
	if err != nil && !*update {
		t.Fatal(err)
	}
	seeds := make(map[string]uint64)
	for line := range strings.Lines(string(file)) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		seed, err := strconv.ParseUint(digits, 10, 64)
		if _, ok := mutantNamed(name); !ok && *update {
			continue // it is no more
		} else if !ok || err != nil {
			t.Fatalf("%s: %q: want the name of a bug and a seed", seedsFile, line)
		}
		seeds[name] = seed
	}
	return seeds
}

func writeSeeds(t *testing.T, seeds map[string]uint64) {
	t.Helper()
	var b strings.Builder
	for _, m := range mutant.All() {
		if seed, ok := seeds[m.String()]; ok {
			fmt.Fprintln(&b, m, seed)
		}
	}
	if err := os.WriteFile(seedsFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func seedRange(t *testing.T) (from, to uint64) {
	t.Helper()
	s := os.Getenv("ISOTONE_SEEDS")
	if s == "" {
		return 0, 10000
	}
	a, b, _ := strings.Cut(s, "-")
	from, err1 := strconv.ParseUint(a, 10, 64)
	to, err2 := strconv.ParseUint(b, 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatalf("ISOTONE_SEEDS=%q: want FROM-TO", s)
	}
	return from, to
}
