//go:build mutants

package eventlog_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/spec"
)

var update = flag.Bool("update", false, "search for a seed for each bug, and write those that are refused to "+refusedFile)

// refusedFile has a line "NAME SEED RULE" for each deliberate bug that the specification refuses by itself in the run of a seed.
var refusedFile = filepath.Join("testdata", "refused.txt")

// searched is how many seeds -update tries, after that with which the simulator notices the bug.
const searched = 8

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
		if v := runWith(m, seed); v == nil || v.Rule != rule {
			t.Errorf("%s: seed %d is to be refused by the rule %q, and was by %v; search for another with -update", name, seed, rule, v)
		}
	}
}

// runWith runs a seed with a bug, and returns what the specification says.
func runWith(m mutant.Mutant, seed uint64) *spec.Violation {
	mutant.Switch(m)
	defer mutant.Switch(mutant.None)
	v, _, _ := check(seed, "order") // that rule checks answers, as the simulator does
	return v
}

// search writes which bugs are refused.
func search(t *testing.T) {
	seeds := map[string]uint64{}
	text, err := os.ReadFile(filepath.Join("..", "..", "core", "sim", "testdata", "mutant_seeds.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var name string
		var seed uint64
		if _, err := fmt.Sscan(line, &name, &seed); err == nil {
			seeds[name] = seed
		}
	}
	var out bytes.Buffer
	all := 0
	for _, m := range mutant.All() {
		if m.IsOfTable() || m.IsOfFrontier() || m.IsOfSession() || m.IsOfClient() {
			continue
		}
		all++
		for i := range uint64(searched + 1) {
			seed, known := seeds[m.String()]
			if i > 0 {
				seed = i - 1
			} else if !known {
				continue
			}
			if v := runWith(m, seed); v != nil {
				fmt.Fprintln(&out, m, seed, v.Rule)
				break
			}
		}
	}
	t.Logf("%d of %d bugs are refused", bytes.Count(out.Bytes(), []byte("\n")), all)
	if err := os.WriteFile(refusedFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
