//go:build linux

package trial

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/evidence"
)

// root is the repository, from the directory of a test in internal/check or fence/internal.
const root = "../../.."

// settings begin the names of the environment variables that a storm depends on.
var settings = []string{"CHAOS_", "UPGRADE_", "MEMBER_", "FENCE_", "CALL_DEADLINE"}

// Record adds a storm to the ledger docs/evidence/storms.csv if RECORD is set, as in "make chaos RECORD=1". A test
// that has failed counts as one violation at least. Settings are those in the environment, after s.Settings.
func Record(t *testing.T, s evidence.Storm) {
	t.Helper()
	if os.Getenv("RECORD") == "" {
		return
	}
	if t.Failed() {
		s.Violations = max(1, s.Violations)
	}
	var set []string
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if value != "" && slices.ContainsFunc(settings, func(p string) bool { return strings.HasPrefix(name, p) }) {
			set = append(set, v)
		}
	}
	slices.Sort(set)
	s.Commit, s.Settings = evidence.Commit(root), strings.TrimSpace(s.Settings+" "+strings.Join(set, " "))
	if err := evidence.AppendStorm(root, s); err != nil {
		t.Error(err)
	}
}
