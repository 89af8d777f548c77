//go:build linux

package verify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/verify"
	"github.com/isotone/isotone/internal/check/wallclock"
)

// options returns those of a run of counters that ends when enough says so.
func options(t testing.TB, kind string, faults ...string) verify.Options {
	o := verify.Default()
	o.System, o.Driver, o.Faults = "counter", driverOf(t, kind), faults
	o.Clients, o.Count, o.Duration, o.Window = 8, 5, time.Hour, 1<<16
	return verify.Hurried(o)
}

// run runs until enough returns true.
func run(t testing.TB, o verify.Options, enough func(*verify.Result) bool) *verify.Result {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, errors.New("it takes too long"))
	defer cancel()
	o.Show = func(r *verify.Result) {
		if enough(r) {
			cancel()
		}
	}
	r, err := verify.Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if context.Cause(ctx) != context.Canceled {
		t.Fatalf("%v: %+v", context.Cause(ctx), r)
	}
	return r
}

// endedKinds returns the kinds of all faults of a result that have ended.
func endedKinds(r *verify.Result) (kinds []string) {
	for _, f := range r.Faults {
		if f.EndS > 0 {
			kinds = append(kinds, f.Kind)
		}
	}
	return kinds
}

// hasAll reports whether faults of all kinds have ended, and answers came after the last of them.
func hasAll(kinds ...string) func(*verify.Result) bool {
	return func(r *verify.Result) bool {
		for _, kind := range kinds {
			if !slices.Contains(endedKinds(r), kind) {
				return false
			}
		}
		return len(r.Columns) > 0 && r.Columns[len(r.Columns)-1].Answers > 0
	}
}

// TestRun_ARightSystemHolds under signals: it is not accused, and it answers again after each fault.
func TestRun_ARightSystemHolds(t *testing.T) {
	t.Parallel()
	r := run(t, options(t, right, verify.Kill, verify.Term, verify.Pause), hasAll(verify.Kill, verify.Term, verify.Pause))
	if r.Broken() || r.Held() != verify.RealTime || r.Verdicts[0].Unverified > 0 {
		t.Errorf("%+v %+v", r.Verdicts, r.Anomalies)
	}
	if !r.Interrupted || r.Failed == 0 || len(r.Errors) == 0 || r.Numbers <= r.Answers || len(r.Nodes) != 3 {
		t.Errorf("%+v", r)
	}
	for _, f := range r.Faults {
		if f.EndS < f.AtS || len(f.Nodes) == 0 || f.Kind == verify.EndedByItself {
			t.Errorf("%+v", f)
		}
	}
}

// TestRun_CutsLinks: what the network may do to nodes, on a right system.
func TestRun_CutsLinks(t *testing.T) {
	t.Parallel()
	if why := verify.NetworkDenied(); why != "" {
		t.Skip(why)
	}
	kinds := []string{verify.Cut, verify.Partition, verify.CutIn, verify.CutOut, verify.Loss}
	r := run(t, options(t, right, kinds...), hasAll(kinds...))
	if r.Broken() || r.Held() != verify.RealTime || !r.Network || len(r.LeftOut) > 0 {
		t.Errorf("%+v", r)
	}
}

// TestRun_FindsWhatIsWrong, and tells how wrong.
func TestRun_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind     string
		isUnique bool
	}{
		{amnesiac, false},
		{ahead, true},
	} {
		t.Run(test.kind, func(t *testing.T) {
			t.Parallel()
			o := options(t, test.kind, verify.Kill)
			r := run(t, o, func(r *verify.Result) bool { return r.Broken() && len(r.Faults) > 0 })
			if (r.Held() == "") == test.isUnique || r.Held() == verify.RealTime || len(r.Anomalies) == 0 {
				t.Fatalf("held: %q; %+v", r.Held(), r.Verdicts)
			}
			a := r.Anomalies[0]
			if !a.Later.Known || a.Later.EndedS < a.Later.BeganS || a.Later.First == "" {
				t.Errorf("%+v", a)
			}
		})
	}
	t.Run(garbled, func(t *testing.T) {
		t.Parallel()
		r := run(t, options(t, garbled, "none"), func(r *verify.Result) bool { return r.Malformed > 0 })
		if !r.Broken() || len(r.Errors) == 0 || !strings.Contains(r.Errors[0].Message, "soon") {
			t.Errorf("%+v", r)
		}
	})
}

// TestRun_SetsClocks of a right system, which does not care, and says by how much.
func TestRun_SetsClocks(t *testing.T) {
	t.Parallel()
	wantClocks(t)
	r := run(t, options(t, right, verify.Clock, verify.ClockKill), hasAll(verify.Clock, verify.ClockKill))
	if r.Broken() || r.Held() != verify.RealTime {
		t.Errorf("%+v %+v", r.Verdicts, r.Anomalies)
	}
	for _, f := range r.Faults {
		if off := time.Duration(f.ClockMS) * time.Millisecond; off.Abs() < 10*time.Millisecond || off.Abs() > time.Hour || off < 0 && f.Kind == verify.ClockKill {
			t.Errorf("%+v", f)
		}
	}
}

// TestRun_FindsTrustInClocks: of a generator of IDs that believes its clock, and of one that notices when it is set back, but
// not if it was started meanwhile.
func TestRun_FindsTrustInClocks(t *testing.T) {
	t.Parallel()
	wantClocks(t)
	for kind, fault := range map[string]string{trusting: verify.Clock, refusing: verify.ClockKill} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := options(t, kind, fault)
			o.Nodes = 1 // they do not share their numbers out
			if r := run(t, o, func(r *verify.Result) bool { return r.Held() == "" }); len(r.Faults) == 0 || !r.Broken() {
				t.Errorf("%+v", r)
			}
		})
	}
}

func wantClocks(t *testing.T) {
	if why := wallclock.Denied(); why != "" {
		t.Skip(why)
	}
}

// TestRun_StartsNodesAgain that end by themselves, and says so, also without faults.
func TestRun_StartsNodesAgain(t *testing.T) {
	t.Parallel()
	for _, faults := range []string{"none", verify.Pause} {
		r := run(t, options(t, mortal, faults), func(r *verify.Result) bool { return r.Answers > 8000 })
		if kinds := endedKinds(r); r.Broken() || !slices.Contains(kinds, verify.EndedByItself) {
			t.Errorf("%s: %v", faults, kinds)
		}
	}
}

// TestRun_RefusesADirectoryWithFiles: those of an earlier run would mix with its own.
func TestRun_RefusesADirectoryWithFiles(t *testing.T) {
	t.Parallel()
	o := options(t, right, "none")
	o.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(o.Dir, "node1.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := verify.Run(t.Context(), o); !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), "want a new or an empty directory") {
		t.Errorf("got %v", err)
	}
}

// TestRun_EndsByItself: after Duration, without an interrupt.
func TestRun_EndsByItself(t *testing.T) {
	t.Parallel()
	o := options(t, right, "none")
	o.Duration, o.System = time.Second, "exec"
	r, err := verify.Run(t.Context(), o)
	if err == nil && r.System != "counter" {
		t.Errorf("the system is %q, want the name that its driver says", r.System)
	}
	if err != nil || r.Interrupted || r.Seconds < 1 || r.Answers == 0 || len(r.Faults) > 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestRun_SaysWhyItFailed: by the log of a node, or of the driver.
func TestRun_SaysWhyItFailed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		driver []string
		want   string
	}{
		{driverOf(t, still), "this node does not want to run"},
		{[]string{"sh", "-c", "echo no driver here >&2; exit 3"}, "no driver here"},
		{[]string{"/does/not/exist"}, "/does/not/exist"},
	} {
		o := options(t, right, "none")
		o.Driver = test.driver
		if _, err := verify.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.driver, err, test.want)
		}
	}
}

// TestRun_ShowsWhatItSawBeforeADriverEnded: an hour of faults is not lost by it.
func TestRun_ShowsWhatItSawBeforeADriverEnded(t *testing.T) {
	t.Parallel()
	r, err := verify.Run(t.Context(), options(t, deserted, "none"))
	if err == nil || !strings.Contains(err.Error(), "has ended by itself") || r == nil || r.Answers == 0 || !r.Interrupted {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestOptions_ListAllFaults(t *testing.T) {
	o := options(t, right, "none", "melt")
	o.Nodes, o.Clients, o.Processes, o.Count, o.Window, o.Duration, o.Timeout = 26, 0, 17, 0, 0, 0, 0
	err := o.Validate()
	if !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Fatal(err)
	}
	for _, want := range []string{"--nodes 26", "--clients 0", "--processes 17", "--count 0", "--window 0", "--duration 0s", "--timeout 0s", "--faults melt", "none stands alone"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

// harness is a run in a process of its own, which prints the result of each moment.
func harness(dir string) error {
	o := verify.Default()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.System, o.Driver, o.Dir, o.Duration = "counter", []string{"env", role + "=driver:" + right, self}, dir, time.Hour
	o.Show = func(r *verify.Result) { _ = json.NewEncoder(os.Stdout).Encode(r) }
	_, err = verify.Run(context.Background(), o)
	return err
}

// TestRun_LeavesNothingBehindWhenKilled: neither a node, nor a driver, nor a process that keeps a namespace alive.
func TestRun_LeavesNothingBehindWhenKilled(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), role+"=harness:"+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for results := json.NewDecoder(out); ; {
		var r verify.Result
		if err := results.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if len(r.Faults) > 0 { // in the middle of it
			break
		}
	}
	before := startedBy(t, cmd.Process.Pid)
	if len(before) < 4 {
		t.Fatalf("of a run there are only %v", before)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "all processes of the run have ended", func() bool {
		return !slices.ContainsFunc(before, func(pid string) bool { return alive(pid) })
	})
}

// startedBy returns the processes that a process has started, and these have.
func startedBy(t *testing.T, parent int) (pids []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	children := map[string][]string{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		children[fields[1]] = append(children[fields[1]], filepath.Base(filepath.Dir(path)))
	}
	for list := children[fmt.Sprint(parent)]; len(list) > 0; list = list[1:] {
		pids = append(pids, list[0])
		list = append(list, children[list[0]]...)
	}
	return pids
}

// alive reports whether a process runs; one that has ended may still wait for its parent.
func alive(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}
