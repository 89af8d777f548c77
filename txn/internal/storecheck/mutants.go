//go:build mutants

package storecheck

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/isotone/isotone/txn/internal/mutant"
)

// mutantKey names the bug that a process is to have.
const mutantKey = "ISOTONE_TXN_STORE_MUTANT"

// Noticed wants each bug to be noticed by a test, which runs in a process of its own with the bug. Call it as
// the only thing that a test does.
func Noticed(t *testing.T, tests map[mutant.Mutant]func(*testing.T)) {
	t.Helper()
	for m, test := range tests {
		switch os.Getenv(mutantKey) {
		case m.String():
			mutant.Switch(m)
			test(t)
		case "":
			cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
			cmd.Env = append(os.Environ(), mutantKey+"="+m.String())
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL") {
				t.Errorf("%v was not noticed: %v\n%s", m, err, out)
			} else {
				t.Logf("%v: %s", m, out)
			}
		}
	}
}
