package evidence_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/evidence"
)

func TestCountRuns_CountsRunsAndTheirFailures(t *testing.T) {
	event := func(action, test string) string {
		return fmt.Sprintf(`{"Time":"x","Action":%q,"Package":"p","Test":%q}`, action, test) + "\n"
	}
	pass, fail := event("run", "TestA")+event("pass", "TestA"), event("run", "TestA")+event("fail", "TestA/deep")+event("fail", "TestA")
	whole := `{"Action":"fail","Package":"p"}` + "\n"
	for name, tc := range map[string]struct {
		text           string
		runs, failures uint64
		failed         map[string]uint64
	}{
		"all pass":              {pass + pass + pass + event("skip", "TestB") + `{"Action":"pass","Package":"p"}`, 3, 0, map[string]uint64{}},
		"one of three fails":    {pass + fail + pass + whole, 3, 1, map[string]uint64{"TestA": 1, "TestA/deep": 1}},
		"it does not build":     {"# p\nx.go:1: oops\n" + `{"ImportPath":"p","Action":"build-fail"}` + "\n" + whole, 0, 1, map[string]uint64{"(package)": 1}},
		"a panic after one run": {pass + event("run", "TestA") + whole, 1, 1, map[string]uint64{"(package)": 1}},
		"no tests":              {`{"Action":"skip","Package":"p"}`, 0, 0, map[string]uint64{}},
	} {
		runs, failures, failed, err := evidence.CountRuns(strings.NewReader(tc.text))
		if err != nil || runs != tc.runs || failures != tc.failures || !maps.Equal(failed, tc.failed) {
			t.Errorf("%s: %d runs, %d failures, %v, %v", name, runs, failures, failed, err)
		}
	}
}

func TestOrder_TheFewestRunsFirstAndThenTheShortest(t *testing.T) {
	list := []evidence.Flakes{
		{Package: "long", Runs: 10, Seconds: 500}, {Package: "short", Runs: 10, Seconds: 5}, {Package: "short", Runs: 30, Seconds: 9, Race: true},
		{Package: "often", Runs: 10, Seconds: 1}, {Package: "often", Runs: 10, Failures: 1, Seconds: 1},
	}
	packages := []string{"often", "long", "never", "short"}
	totals := evidence.Totals(list, false)
	evidence.Order(packages, totals)
	if !slices.Equal(packages, []string{"never", "short", "long", "often"}) {
		t.Errorf("%v", packages)
	}
	if often := totals["often"]; often.Runs != 20 || often.Failures != 1 || often.Seconds != 2 || evidence.Totals(list, true)["short"].Runs != 30 {
		t.Errorf("%+v", totals)
	}
	var table strings.Builder
	if err := evidence.WriteFlakes(&table, totals); err != nil || !strings.HasSuffix(table.String(), "    20 runs      1 failed  often\n") {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// TestPresent_IsTheStateOfWhatTestsDependOn: neither a ledger nor a page makes another one.
func TestPresent_IsTheStateOfWhatTestsDependOn(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(name, text string) string {
		t.Helper()
		write(name, text)
		git("add", "-A")
		git("commit", "-q", "-m", "x")
		return git("rev-parse", "--short=8", "HEAD")
	}
	git("init", "-q")
	first := commit("testdata/a.txt", "1")
	second := commit("testdata/a.txt", "2")
	third := commit("docs/a.md", "1")
	if is := evidence.Clean(dir); is != third {
		t.Errorf("the present commit is %q, want %q", is, third)
	}
	write("docs/evidence/flakes.csv", "x")
	if is := evidence.Clean(dir); is != third {
		t.Errorf("with a ledger that has grown: %q, want %q", is, third)
	}
	present := evidence.Present(dir, []evidence.Flakes{{Commit: first}, {Commit: second}, {Commit: "00000000"}, {Commit: third}, {Commit: second}})
	if want := []evidence.Flakes{{Commit: second}, {Commit: third}, {Commit: second}}; !slices.Equal(present, want) {
		t.Errorf("%v, want %v", present, want)
	}
	write("testdata/a.txt", "3")
	if is := evidence.Clean(dir); is != "" {
		t.Errorf("files differ from commit %q, which is taken for the present one", is)
	}
}
