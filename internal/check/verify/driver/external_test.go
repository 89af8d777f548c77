//go:build linux

package driver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/verify/driver"
)

func TestExternal_TheDriverInPythonAsksItsNode(t *testing.T) {
	needs(t, "python3")
	path, err := filepath.Abs("../../../../examples/python/verify_driver.py")
	if err != nil {
		t.Fatal(err)
	}
	p := startCommand(t, "counter", "python3", path)
	r := run(t, p, 1, nil)
	if a := r.ask(0, 0, 2, 1); len(a.Calls) != 2 || a.Calls[0].First != "2" || a.Calls[1].First != "3" { // ready took 1
		t.Errorf("%+v: want 2 and 3", a)
	}
	r.increase(0, 1)
	r.end(0, os.Kill)
	if f := r.refused(0); f.Error != driver.Unavailable {
		t.Errorf("a node that has ended: %+v", f)
	}
}

func TestExternal_ABugOfTheDriverInPythonIsShown(t *testing.T) {
	needs(t, "python3")
	path, err := filepath.Abs("../../../../examples/python/verify_driver.py")
	if err != nil {
		t.Fatal(err)
	}
	p, err := driver.Start("counter", filepath.Join(t.TempDir(), "log"), []string{"python3", path})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	err = p.Ready(t.Context(), 0, time.Second) // without connect
	if err == nil || !strings.Contains(err.Error(), "ended by itself (exit status 1)") || !strings.Contains(err.Error(), "IndexError") {
		t.Errorf("%v: want the exit status and the exception", err)
	}
}
