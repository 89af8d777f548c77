package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/verify"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

func TestVerify_SaysWhatIsWrongWithTheCommandLine(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--system", "exec"}, "want a driver after --"},
		{[]string{"--", "./driver"}, "--system exec"},
		{[]string{"--system", "sundial"}, "want http, isotone, postgres, redis or exec"},
		{[]string{"--faults", "melt"}, "--faults melt: want none, or some of kill, term"},
		{[]string{"--faults", "kill", "--endpoint", "127.0.0.1:1"}, "no faults"},
		{[]string{"--nodes", "2", "--endpoint", "127.0.0.1:1"}, "--nodes and --endpoint"},
		{[]string{"--endpoint", ""}, "--endpoint is empty"},
		{[]string{"--endpoint", "a:1,,b:1"}, "--endpoint: an address is empty"},
		{[]string{"--endpoint", "a:1,b:1,a:1"}, "--endpoint a:1: given twice"},
		{[]string{"--faults="}, "--faults is empty"},
		{[]string{"--replay", "/dev/null"}, "--replay /dev/null: this is no result"},
		{[]string{"--duration", "1ms"}, "--duration 1ms: want 1s to 168h"},
		{[]string{"--clients", "0"}, "--clients 0: want 1 to 1024"},
		{[]string{"--replay", "/does/not/exist"}, "--replay"},
		{[]string{"--report", "/does/not/exist/r.html"}, "--report"},
	} {
		code, _, errs := command(append([]string{"verify"}, test.args...)...)
		if code != exitUsage || !strings.Contains(errs, test.want) {
			t.Errorf("%q: exit code %d, want %q in:\n%s", test.args, code, test.want, errs)
		}
	}
}

// TestVerify_HelpListsAll systems and kinds of faults.
func TestVerify_HelpListsAll(t *testing.T) {
	_, out, _ := command("verify", "--help")
	words := strings.FieldsFunc(out, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' || r == ';' })
	for _, name := range append(driver.Systems(), verify.FaultKinds...) {
		if !slices.Contains(words, name) {
			t.Errorf("%s is missing in:\n%s", name, out)
		}
	}
}

func TestVerify_RepeatsWithItsSeed(t *testing.T) {
	for args, want := range map[string]string{
		"verify":                                   "isotone verify --seed=7",
		"verify --seed 3 --nodes 5":                "isotone verify --seed=7 --nodes 5",
		"verify --seed=3 --json":                   "isotone verify --seed=7 --json",
		"verify --system exec -- ./d --seed 1":     "isotone verify --seed=7 --system exec -- ./d --seed 1",
		"verify -o a=1 --option b=2 --faults none": "isotone verify --seed=7 -o a=1 --option b=2 --faults none",
	} {
		if got := strings.Join(repeat(strings.Fields(args), 7), " "); got != want {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
	}
}
