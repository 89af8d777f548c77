// Package evidence keeps the ledgers in docs/evidence: what was run to find violations of the promises, and for which
// state of the code. docs/correctness.md has the totals for the present one.
package evidence

import (
	"crypto/sha256"
	"encoding/csv"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Dir is where the ledgers are in the repository, and Page has the totals.
const (
	Dir  = "docs/evidence"
	Page = "docs/correctness.md"
)

// coreSources are the folders whose code a simulation runs, and raftModule is the library below it.
var coreSources = []string{".", "snowflake", "internal/core"}

const raftModule = "go.etcd.io/raft/v3 "

// Core identifies the state of the code that a simulation runs, in the repository at root: 16 hexadecimal digits, which
// change with the code of any file of it but tests, and not with comments.
func Core(root string) (string, error) {
	var files []string
	for _, dir := range coreSources {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && dir != "internal/core" && path != filepath.Join(root, dir):
				return fs.SkipDir
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	slices.Sort(files)
	sum := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, filepath.ToSlash(name))
		if err := writeCode(sum, name, text); err != nil {
			return "", err
		}
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mod)) {
		if strings.Contains(line, raftModule) {
			fmt.Fprintln(sum, strings.TrimSpace(line))
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), nil
}

// writeCode writes the tokens of a Go file: all but comments, which change nothing, other than directives (//go:).
func writeCode(w io.Writer, name string, text []byte) error {
	var tokens scanner.Scanner
	var faults scanner.ErrorList
	file := token.NewFileSet().AddFile(name, -1, len(text))
	tokens.Init(file, text, faults.Add, scanner.ScanComments)
	for {
		_, kind, literal := tokens.Scan()
		switch {
		case kind == token.EOF:
			return faults.Err()
		case kind == token.COMMENT && !strings.HasPrefix(literal, "//go:"):
		default:
			fmt.Fprintf(w, "%v %q\n", kind, literal)
		}
	}
}

// Commit returns the present commit of the repository at root, or "" if sources are not those of it.
func Commit(root string) string { return commit(root, "*.go", "go.mod") }

// commit returns the present commit, or "" if any of the files is not that of it.
func commit(root string, files ...string) string {
	changed, err := exec.Command("git", append([]string{"-C", root, "status", "--porcelain", "--"}, files...)...).Output()
	if err != nil || len(changed) > 0 {
		return ""
	}
	out, err := exec.Command("git", "-C", root, "rev-parse", "--short=8", "HEAD").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// A ledger is a CSV file with a line for each series. Its columns:
//   - date, of the end, as YYYY-MM-DD, or empty if nobody noted it
//   - core, as [Core] gives it, or empty for series from before it was recorded
//   - commit, as far as it is known
//   - the others, by kind

// Sim is a series of simulated runs with consecutive seeds: a line of sim.csv.
type Sim struct {
	Date, Core, Commit string
	Seed, Runs         uint64
	Hours              float64 // simulated
	Operations         uint64
	Answered           uint64
	Terms, IDs         uint64
	Violations         uint64
	Note               string // what a violation was, for people
}

var simColumns = []string{"date", "core", "commit", "seed", "runs", "hours", "operations", "answered", "terms", "ids", "violations", "note"}

func (s *Sim) record() []string {
	n := func(v uint64) string { return strconv.FormatUint(v, 10) }
	return []string{
		s.Date, s.Core, s.Commit, n(s.Seed), n(s.Runs), strconv.FormatFloat(s.Hours, 'f', 1, 64), n(s.Operations), n(s.Answered), n(s.Terms), n(s.IDs), n(s.Violations), s.Note,
	}
}

// Fuzz is a campaign with one target: a line of fuzz.csv.
type Fuzz struct {
	Date, Commit    string
	Package, Target string
	Executions      uint64
	Findings        string // for people; empty for none
}

var fuzzColumns = []string{"date", "commit", "package", "target", "executions", "findings"}

// Append adds lines to a ledger, which exists.
func Append(root, ledger string, records ...[]string) error {
	f, err := os.OpenFile(filepath.Join(root, Dir, ledger), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	err = w.WriteAll(records)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// AppendSim adds a series of today to sim.csv.
func AppendSim(root string, s Sim) error {
	s.Date = time.Now().UTC().Format(time.DateOnly)
	return Append(root, "sim.csv", s.record())
}

// AppendFuzz adds a campaign of today to fuzz.csv.
func AppendFuzz(root string, f Fuzz) error {
	return Append(root, "fuzz.csv", []string{time.Now().UTC().Format(time.DateOnly), f.Commit, f.Package, f.Target, strconv.FormatUint(f.Executions, 10), f.Findings})
}

// read returns the lines of a ledger after its head, which has to be columns.
func read(root, ledger string, columns []string) ([][]string, error) {
	f, err := os.Open(filepath.Join(root, Dir, ledger))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.FieldsPerRecord = len(columns)
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ledger, err)
	}
	if !slices.Equal(head, columns) {
		return nil, fmt.Errorf("%s: columns %q, want %q", ledger, head, columns)
	}
	return r.ReadAll()
}

// each passes the lines of a ledger to take.
func each(root, ledger string, columns []string, take func(line []string) error) error {
	lines, err := read(root, ledger, columns)
	for i, l := range lines {
		if err := take(l); err != nil {
			return fmt.Errorf("%s, line %d: %w", ledger, i+2, err)
		}
	}
	return err
}

// ReadSim returns sim.csv.
func ReadSim(root string) (list []Sim, err error) {
	err = each(root, "sim.csv", simColumns, func(l []string) (err error) {
		s := Sim{Date: l[0], Core: l[1], Commit: l[2], Note: l[11]}
		if _, err := time.Parse(time.DateOnly, s.Date); err != nil && s.Date != "" {
			return err
		}
		if s.Hours, err = strconv.ParseFloat(l[5], 64); err == nil {
			err = parse(l, map[int]*uint64{3: &s.Seed, 4: &s.Runs, 6: &s.Operations, 7: &s.Answered, 8: &s.Terms, 9: &s.IDs, 10: &s.Violations})
		}
		list = append(list, s)
		return err
	})
	return list, err
}

// ReadFuzz returns fuzz.csv.
func ReadFuzz(root string) (list []Fuzz, err error) {
	err = each(root, "fuzz.csv", fuzzColumns, func(l []string) error {
		f := Fuzz{Date: l[0], Commit: l[1], Package: l[2], Target: l[3], Findings: l[5]}
		err := parse(l, map[int]*uint64{4: &f.Executions})
		list = append(list, f)
		return err
	})
	return list, err
}

// Storm is a storm of real processes: a line of storms.csv.
type Storm struct {
	Commit            string
	Command, Settings string // as in "make chaos" and "CHAOS_MINUTES=30 CHAOS_SEED=7"
	Took              time.Duration
	Faults            string // for people
	Operations        uint64
	Answered, Leased  uint64 // Leased are those of Answered in lease mode
	IDs               uint64
	Violations        uint64
	Note              string // for people
}

// AppendStorm adds a storm of today to storms.csv. What nobody counted, 0, stays empty.
func AppendStorm(root string, s Storm) error {
	n := func(v uint64) string {
		if v == 0 {
			return ""
		}
		return strconv.FormatUint(v, 10)
	}
	return Append(root, "storms.csv", []string{
		time.Now().UTC().Format(time.DateOnly), s.Commit, s.Command, s.Settings, strconv.Itoa(int(s.Took.Round(time.Minute).Minutes())), s.Faults,
		n(s.Operations), n(s.Answered), n(s.Leased), n(s.IDs), strconv.FormatUint(s.Violations, 10), s.Note,
	})
}

var stormColumns = []string{"date", "commit", "command", "settings", "minutes", "faults", "operations", "answered", "in_lease_mode", "ids", "violations", "note"}

// CheckStorms returns an error unless storms.csv can be read.
func CheckStorms(root string) error {
	return each(root, "storms.csv", stormColumns, func(l []string) error {
		var n uint64
		return parse(l, map[int]*uint64{4: &n, 6: &n, 7: &n, 8: &n, 9: &n, 10: &n})
	})
}

// parse reads the numbers in some fields of a line; an empty field is one that nobody counted.
func parse(line []string, into map[int]*uint64) (err error) {
	for field, to := range into {
		if line[field] != "" && err == nil {
			*to, err = strconv.ParseUint(line[field], 10, 64)
		}
	}
	return err
}

// WriteTotals writes the table of simulated runs: those of the core as it is, and of all before.
func WriteTotals(w io.Writer, core string, list []Sim) error {
	var now, before Sim
	for _, s := range list {
		sum := &before
		if s.Core == core {
			sum = &now
		}
		sum.Runs += s.Runs
		sum.Hours += s.Hours
		sum.Operations += s.Operations
		sum.Violations += s.Violations
	}
	_, err := fmt.Fprintf(w, "| simulated | runs | hours | operations | violations |\n|---|---:|---:|---:|---:|\n"+
		"| the core as it is (`%s`) | %s | %s | %s | %s |\n| earlier states of it; hours and operations as far as they were noted | %s | %s | %s | %s |\n",
		core, grouped(now.Runs), grouped(uint64(now.Hours)), grouped(now.Operations), grouped(now.Violations),
		grouped(before.Runs), grouped(uint64(before.Hours)), grouped(before.Operations), grouped(before.Violations))
	return err
}

// The totals in the page stand between these lines.
const (
	begin = "<!-- totals: written by go generate ./internal/check/evidence -->\n"
	end   = "<!-- end of totals -->\n"
)

// UpdatedPage returns the page as it is, and with the totals of the ledger.
func UpdatedPage(root string) (have, want string, err error) {
	core, err := Core(root)
	if err != nil {
		return "", "", err
	}
	list, err := ReadSim(root)
	if err != nil {
		return "", "", err
	}
	page, err := os.ReadFile(filepath.Join(root, Page))
	if err != nil {
		return "", "", err
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ends := strings.Cut(rest, end)
	if !ok || !ends {
		return "", "", fmt.Errorf("%s has no totals between %q and %q", Page, begin, end)
	}
	var totals strings.Builder
	if err := WriteTotals(&totals, core, list); err != nil {
		return "", "", err
	}
	return string(page), before + begin + totals.String() + end + after, nil
}

// UpdatePage writes the totals of the ledger into the page.
func UpdatePage(root string) error {
	have, want, err := UpdatedPage(root)
	if err != nil || have == want {
		return err
	}
	return os.WriteFile(filepath.Join(root, Page), []byte(want), 0o644)
}

// grouped writes n with commas between thousands.
func grouped(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
