package structure_test

import (
	"go/build/constraint"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// faultsFile is the only file that builds with the tag faults have and releases have not, and faultsNone the
// only one that releases have instead. What the tag decides ends there.
const (
	faultsFile = "cmd/isotone/faults.go"
	faultsNone = "cmd/isotone/faults_none.go"
)

// TestFaults_AreInNoRelease: only one file imports them, and nothing else depends on the tag.
// TestStatic_RunsInAnEmptyDirectory of cmd/isotone looks into a binary.
func TestFaults_AreInNoRelease(t *testing.T) {
	fset := token.NewFileSet()
	var tagged []string
	for _, src := range parseModule(t, fset) {
		for _, group := range src.file.Comments {
			for _, c := range group.List {
				if expr, err := constraint.Parse(c.Text); err == nil && strings.Contains(expr.String(), "faults") {
					tagged = append(tagged, src.path+" "+expr.String())
				}
			}
		}
		for _, pkg := range []string{"/internal/host/faults", "/internal/host/stops"} {
			imports := slices.Contains(importsOf(src.file), module+pkg)
			if imports && !src.test && src.path != faultsFile && !strings.HasPrefix(src.pkg, "internal/check/") {
				t.Errorf("%s imports %s: a release would have it", src.path, pkg)
			}
		}
	}
	slices.Sort(tagged)
	if want := []string{faultsFile + " faults", faultsNone + " !faults"}; !slices.Equal(tagged, want) {
		t.Errorf("files with the tag: %v, want %v", tagged, want)
	}
}
