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
	"runtime"
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

// searched bounds the seeds that are tried for a bug whose recorded seed is stale; with -update it is searchedMost. Recording the seeds of all
// costs less than searching again in each run.
const searched, searchedMost = 500, 10000

// TestMutants_AreAllNoticed wants the simulator to notice each deliberate bug. A process of its
// own runs each, because the switch is global. ISOTONE_MUTANT names some
// bugs, separated by commas, ISOTONE_SEEDS ("FROM-TO") the seeds to run them with instead of the recorded ones.
func TestMutants_AreAllNoticed(t *testing.T) {
	recorded := readSeeds(t)
	if only := os.Getenv("ISOTONE_MUTANT"); only != "" {
		runAsTold(t, only, recorded)
		return
	}
	var mu sync.Mutex
	noticedBy, stale := make(map[string]uint64), map[string]bool{}
	t.Run("each", func(t *testing.T) {
		for _, m := range mutant.All() {
			if m.IsDirected() || m.IsOfTable() || m.IsOfFrontier() || m.IsOfSession() || m.IsOfClient() && !slices.Contains(ofClients, m) {
				continue
			}
			t.Run(m.String(), func(t *testing.T) {
				t.Parallel()
				name := m.String()
				seed, ok := recorded[name]
				if ok {
					_, ok = run(t, []string{name}, "")[name]
				}
				mu.Lock()
				defer mu.Unlock()
				if ok {
					noticedBy[name] = seed
				} else {
					stale[name] = true
				}
			})
		}
	})
	if len(stale) > 0 {
		t.Logf("the recorded seeds of %d bugs no longer notice them, or there is none: run make mutant-seeds", len(stale))
		maps.Copy(noticedBy, search(t, stale))
	}
	if *update {
		seeds := maps.Clone(recorded) // -run may have selected some only
		maps.Copy(seeds, noticedBy)
		writeSeeds(t, seeds)
	}
}

// chunk is how many seeds a process searches.
const chunk = 20

// search returns the first seed that notices each of the bugs, and fails for those that none does.
func search(t *testing.T, bugs map[string]bool) map[string]uint64 {
	from, to := uint64(0), uint64(searched)
	if *update {
		to = searchedMost
	}
	var mu sync.Mutex
	var workers sync.WaitGroup
	found := make(map[string]uint64)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				mu.Lock()
				first, left := from, slices.Sorted(maps.Keys(bugs))
				from += chunk
				mu.Unlock()
				if first >= to || len(left) == 0 {
					return
				}
				noticed := run(t, left, fmt.Sprintf("%d-%d", first, min(first+chunk, to)))
				mu.Lock()
				for name, seed := range noticed {
					delete(bugs, name)
					if other, ok := found[name]; !ok || seed < other {
						found[name] = seed
					}
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	for name := range bugs {
		t.Errorf("%s was not noticed by the seeds below %d: make mutant-seeds tries %d", name, to, searchedMost)
	}
	return found
}

// run runs bugs with seeds, or with the recorded ones, in a process of its own, and returns the first seed that notices each.
func run(t *testing.T, bugs []string, seeds string) map[string]uint64 {
	noticed := make(map[string]uint64)
	test, err := os.Executable()
	if err != nil {
		t.Error(err)
		return noticed
	}
	cmd := exec.Command(test, "-test.run=^TestMutants_AreAllNoticed$", "-test.v", "-test.timeout=0")
	cmd.Env = append(os.Environ(), "ISOTONE_MUTANT="+strings.Join(bugs, ","), "ISOTONE_SEEDS="+seeds, "GOMAXPROCS=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err = child.Start(cmd); err == nil { // it does not outlive this process
		err = cmd.Wait()
	}
	for line := range strings.Lines(out.String()) {
		if _, report, ok := strings.Cut(line, noticedMark); ok {
			var name string
			var seed uint64
			if _, err := fmt.Sscanf(report, "%s by seed %d: ", &name, &seed); err != nil {
				t.Errorf("%q: %v", line, err)
			}
			t.Log(strings.TrimSpace(report))
			noticed[name] = seed
		}
	}
	if err != nil && !strings.Contains(out.String(), unnoticedMark) {
		t.Errorf("%v: %v\n%s", cmd, err, out.Bytes())
	}
	return noticed
}

// What runAsTold prints begins with one of these.
const noticedMark, unnoticedMark = "bug noticed: ", "bug not noticed: "

// runAsTold wants the named bugs to be noticed by the seeds of ISOTONE_SEEDS, or by their recorded ones.
func runAsTold(t *testing.T, names string, recorded map[string]uint64) {
	bugs := make(map[mutant.Mutant]bool)
	from, to := seedRange(t)
	for name := range strings.SplitSeq(names, ",") {
		m, ok := mutantNamed(name)
		if !ok {
			t.Fatalf("ISOTONE_MUTANT=%s: there is no such bug", name)
		}
		if seed, ok := recorded[name]; !ok || os.Getenv("ISOTONE_SEEDS") != "" {
			bugs[m] = true
		} else if !notices(t, m, seed) {
			t.Errorf("%s%v by its seed %d", unnoticedMark, m, seed)
		}
	}
	for seed := from; seed < to && len(bugs) > 0; seed++ {
		// A bug is tried only where the run without bugs comes by its place, which is in a few of a hundred runs for many.
		reached := mutant.Reached(func() {
			if v := sim.Run(sim.Options{Seed: seed, Lease: true}).Violation; v != nil {
				t.Fatalf("seed %d without a bug: %v", seed, v)
			}
		})
		for m := range bugs {
			if reached[m] && notices(t, m, seed) {
				delete(bugs, m)
			}
		}
	}
	for m := range bugs {
		t.Errorf("%s%v by the seeds from %d to %d", unnoticedMark, m, from, to)
	}
}

// notices runs a seed with a bug, and reports and logs whether it notices that.
func notices(t *testing.T, m mutant.Mutant, seed uint64) bool {
	mutant.Switch(m)
	defer mutant.Switch(mutant.None)
	v := sim.Run(sim.Options{Seed: seed, Lease: true}).Violation
	if v != nil {
		t.Logf("%s%v by seed %d: %.120v", noticedMark, m, seed, v)
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
		return 0, searchedMost
	}
	a, b, _ := strings.Cut(s, "-")
	from, err1 := strconv.ParseUint(a, 10, 64)
	to, err2 := strconv.ParseUint(b, 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatalf("ISOTONE_SEEDS=%q: want FROM-TO", s)
	}
	return from, to
}
