//go:build linux

package verify_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/verify"
)

// TestRun_ChangesMembers: a node that was removed joins as the driver says, at each try anew.
func TestRun_ChangesMembers(t *testing.T) {
	t.Parallel()
	o := options(t, right, verify.Member)
	o.Dir = t.TempDir()
	r := run(t, o, hasAll(verify.Member))
	f := r.Faults[0]
	if r.Broken() || f.Note != "" || len(f.Nodes) != 1 {
		t.Fatalf("%+v", r)
	}
	text, err := os.ReadFile(filepath.Join(o.Dir, fmt.Sprintf("node%d.log", f.Nodes[0]+1)))
	if err != nil || !strings.HasPrefix(string(text), "this node has joined\n") {
		t.Errorf("%q, %v", text, err)
	}
}

// TestRun_GoesOnWithoutALeader, which neither removes nor adds a member: it says so, or tries again.
func TestRun_GoesOnWithoutALeader(t *testing.T) {
	t.Parallel()
	enough := hasAll(verify.Member)
	r := run(t, options(t, electing, verify.Member), func(r *verify.Result) bool { return len(endedKinds(r)) >= 2 && enough(r) })
	for i, want := range []string{"not removed: unavailable: no leader is known", ""} {
		if f := r.Faults[i]; r.Broken() || f.Note != want {
			t.Errorf("%+v: want the note %q", f, want)
		}
	}
}

// TestRun_LeavesMembersOfOtherSystemsAlone, and says why.
func TestRun_LeavesMembersOfOtherSystemsAlone(t *testing.T) {
	t.Parallel()
	r := run(t, options(t, amnesiac), func(r *verify.Result) bool { return r.Answers > 0 })
	if want := "member: the driver cannot change the members of this system"; !slices.Contains(r.LeftOut, want) || slices.Contains(endedKinds(r), verify.Member) {
		t.Errorf("%q, want %q; %+v", r.LeftOut, want, r.Faults)
	}
}

// TestRun_RefusesFaultsThatAreNotPossible if they are named: nobody may believe that a system has withstood them.
func TestRun_RefusesFaultsThatAreNotPossible(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		faults []string
		nodes  int
		want   string
	}{
		{[]string{verify.Kill, verify.Member}, 3, "--faults member: the driver cannot change the members of this system"},
		{[]string{verify.Kill, verify.Partition}, 1, "--faults partition: "},
	} {
		o := options(t, amnesiac, test.faults...)
		o.Nodes = test.nodes
		if _, err := verify.Run(t.Context(), o); !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "--faults kill") {
			t.Errorf("%q of %d nodes: %v, want %q", test.faults, test.nodes, err, test.want)
		}
	}
}
