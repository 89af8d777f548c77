//go:build mutants

package protocoltrace_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/spec"
)

var update = flag.Bool("update", false, "search for a seed for each bug, and write those that are refused to "+refusedFile)

// refusedMin is how many there are at least: the specification is not to become weaker.
const refusedMin = 149

// TestMutants_AreRefusedByTheSpecification: the specification refuses runs with deliberate bugs of the core, without any check of the simulator.
func TestMutants_AreRefusedByTheSpecification(t *testing.T) {
	if *update {
		search(t)
	}
	text, err := os.ReadFile(refusedFile)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]mutant.Mutant{}
	for _, m := range mutant.All() {
		named[m.String()] = m
	}
	refused, directed, clean := 0, 0, map[uint64]bool{}
	for line := range strings.Lines(string(text)) {
		var name, rule string
		var seed uint64
		if _, err := fmt.Sscan(line, &name, &seed, &rule); err != nil {
			t.Fatalf("%s: %q: %v", refusedFile, line, err)
		}
		m, ok := named[name]
		if !ok {
			t.Fatalf("%s: there is no bug %q", refusedFile, name)
		}
		if refused++; m.IsDirected() {
			directed++
		}
		if !clean[seed] {
			clean[seed] = true
			if v := runWith(mutant.None, seed); v != nil {
				t.Errorf("seed %d is refused without any bug: %v", seed, v)
			}
		}
		if v := runWith(m, seed); v == nil || v.Rule != rule {
			t.Errorf("%s: seed %d is to be refused by the rule %q, and was by %v; search for another with -update", name, seed, rule, v)
		}
	}
	all := 0
	for _, m := range mutant.All() {
		if isOfCore(m) {
			all++
		}
	}
	if refused < refusedMin {
		t.Errorf("%d bugs are refused, want %d at least", refused, refusedMin)
	}
	t.Logf("%d of the %d bugs of the core are refused; %d of them have only directed tests", refused, all, directed)
}

// runWith runs a seed with a bug, and returns what the specification says.
func runWith(m mutant.Mutant, seed uint64) *spec.Violation {
	mutant.Switch(m)
	defer mutant.Switch(mutant.None)
	v, _, _ := check(seed, "order") // that rule checks answers, as the simulator does
	return v
}

// search writes which bugs are refused: by the seed with which the simulator notices the bug, or one of those of -first and -runs. ISOTONE_MUTANT names the only bugs to search for, separated by commas.
func search(t *testing.T) {
	seeds, refused := pairs(t, filepath.Join("..", "..", "core", "sim", "testdata", "mutant_seeds.txt")), pairs(t, refusedFile)
	only := strings.FieldsFunc(os.Getenv("ISOTONE_MUTANT"), func(r rune) bool { return r == ',' })
	var out bytes.Buffer
	for _, m := range mutant.All() {
		if !isOfCore(m) {
			continue
		}
		name := m.String()
		if len(only) == 0 || slices.Contains(only, name) {
			delete(refused, name)
			var try []string
			if seed, ok := seeds[name]; ok {
				try = append(try, seed)
			}
			for seed := range *runs {
				try = append(try, fmt.Sprint(*first+seed))
			}
			for _, text := range try {
				seed, err := strconv.ParseUint(strings.Fields(text)[0], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				if v := runWith(m, seed); v != nil {
					refused[name] = fmt.Sprint(seed, " ", v.Rule)
					break
				}
			}
		}
		if found, ok := refused[name]; ok {
			fmt.Fprintln(&out, name, found)
		}
	}
	if err := os.WriteFile(refusedFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// pairs reads a file with a name in each line, and what follows it.
func pairs(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		list[name] = rest
	}
	return list
}
