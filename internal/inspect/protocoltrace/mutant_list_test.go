package protocoltrace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/core/mutant"
)

// refusedFile has a line "NAME SEED RULE" for each deliberate bug that the specification refuses by itself in the run of a seed.
var refusedFile = filepath.Join("testdata", "refused.txt")

// unseenFile has a line for each other one: its name, a tab, and why steps of replicas do not show it, or no rule refuses it.
var unseenFile = filepath.Join("testdata", "unseen.txt")

// TestMutants_AreRefusedOrExplained: the two files name each deliberate bug of the core once.
func TestMutants_AreRefusedOrExplained(t *testing.T) {
	named := map[string]int{}
	text := map[string]string{}
	for _, path := range []string{refusedFile, unseenFile} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text[path] = string(b)
	}
	for line := range strings.Lines(text[refusedFile]) {
		name, _, _ := strings.Cut(line, " ")
		named[name]++
	}
	for line := range strings.Lines(text[unseenFile]) {
		name, reason, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if named[name]++; reason == "" {
			t.Errorf("%s: %q has no reason", unseenFile, name)
		}
	}
	for _, m := range mutant.All() {
		if name := m.String(); isOfCore(m) && named[name] != 1 {
			t.Errorf("%s and %s name %q %d times, want once", refusedFile, unseenFile, name, named[name])
		} else if isOfCore(m) {
			delete(named, name)
		}
	}
	for name := range named {
		t.Errorf("%q is no bug of the core", name)
	}
}

// isOfCore reports whether a replica may have a bug: it is not one of clients, or of a table that is tested by itself.
func isOfCore(m mutant.Mutant) bool {
	return m != mutant.None && !m.IsOfTable() && !m.IsOfClient()
}
