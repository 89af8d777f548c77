package evidence

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Flakes is the tests of a package, run several times by .ci/flakes: a line of flakes.csv.
type Flakes struct {
	Date, Commit   string
	Package        string // without the path of the module
	Runs, Failures uint64 // Failures are the runs in which the test that failed most often did
	Race           bool   // with the race detector
	Seconds        uint64
}

var flakesColumns = []string{"date", "commit", "package", "runs", "failures", "race", "seconds"}

// AppendFlakes adds a package of today to flakes.csv.
func AppendFlakes(root string, f Flakes) error {
	n := func(v uint64) string { return strconv.FormatUint(v, 10) }
	return Append(root, "flakes.csv", []string{
		time.Now().UTC().Format(time.DateOnly), f.Commit, f.Package, n(f.Runs), n(f.Failures), strconv.FormatBool(f.Race), n(f.Seconds),
	})
}

// ReadFlakes returns flakes.csv.
func ReadFlakes(root string) (list []Flakes, err error) {
	err = each(root, "flakes.csv", flakesColumns, func(l []string) (err error) {
		f := Flakes{Date: l[0], Commit: l[1], Package: l[2]}
		if f.Race, err = strconv.ParseBool(l[5]); err == nil {
			err = parse(l, map[int]*uint64{3: &f.Runs, 4: &f.Failures, 6: &f.Seconds})
		}
		list = append(list, f)
		return err
	})
	return list, err
}

// beside are the files that no test depends on: what differs there makes no other state.
var beside = []string{".", ":!docs/evidence", ":!*.md"}

// Clean returns the present commit of the repository at root, or "" if anything that tests depend on is not that of it.
func Clean(root string) string { return commit(root, beside...) }

// Present returns the lines for the state that the repository at root is in.
func Present(root string, list []Flakes) (present []Flakes) {
	same := map[string]bool{}
	for _, f := range list {
		if _, known := same[f.Commit]; !known {
			diff := exec.Command("git", append([]string{"-C", root, "diff", "--quiet", f.Commit, "HEAD", "--"}, beside...)...)
			same[f.Commit] = diff.Run() == nil
		}
		if same[f.Commit] {
			present = append(present, f)
		}
	}
	return present
}

// Totals sums lines up by package, without or with the race detector.
func Totals(list []Flakes, race bool) map[string]Flakes {
	sums := map[string]Flakes{}
	for _, f := range list {
		if f.Race == race {
			s := sums[f.Package]
			sums[f.Package] = Flakes{Package: f.Package, Runs: s.Runs + f.Runs, Failures: s.Failures + f.Failures, Race: race, Seconds: s.Seconds + f.Seconds}
		}
	}
	return sums
}

// Order sorts packages: those with the fewest runs first, of these those that are done soonest.
func Order(packages []string, totals map[string]Flakes) {
	perRun := func(p string) float64 { return float64(totals[p].Seconds) / float64(max(1, totals[p].Runs)) }
	slices.SortStableFunc(packages, func(a, b string) int {
		return cmp.Or(cmp.Compare(totals[a].Runs, totals[b].Runs), cmp.Compare(perRun(a), perRun(b)))
	})
}

// WriteFlakes writes a table of totals, of packages with the fewest runs first.
func WriteFlakes(w io.Writer, totals map[string]Flakes) error {
	names := slices.Sorted(maps.Keys(totals))
	Order(names, totals)
	for _, name := range names {
		if _, err := fmt.Fprintf(w, "%6d runs %6d failed  %s\n", totals[name].Runs, totals[name].Failures, name); err != nil {
			return err
		}
	}
	return nil
}

// CountRuns reads what "go test -json" printed for one package. It returns how often its tests ran, how many of these runs
// failed, and which tests did how often. A failure outside of any test, such as a panic or one to build, is of "(package)".
func CountRuns(r io.Reader) (runs, failures uint64, failed map[string]uint64, err error) {
	ended, failed := map[string]uint64{}, map[string]uint64{}
	whole := false
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct{ Action, Test string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // what the go command prints besides
		}
		switch {
		case !slices.Contains([]string{"pass", "fail", "skip"}, e.Action):
		case e.Test == "":
			whole = whole || e.Action == "fail"
		default:
			if !strings.Contains(e.Test, "/") {
				ended[e.Test]++
				runs = max(runs, ended[e.Test])
			}
			if e.Action == "fail" {
				failed[e.Test]++
				failures = max(failures, failed[e.Test])
			}
		}
	}
	if whole && len(failed) == 0 {
		failed["(package)"], failures = 1, 1
	}
	return runs, failures, failed, lines.Err()
}
