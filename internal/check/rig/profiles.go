package rig

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// profiling is held while a test takes profiles: a process has one of the CPU, and one trace, at a time.
var profiling sync.Mutex

// CheckProfiles checks the profiles that an admin port serves.
func CheckProfiles(t *testing.T, admin string) {
	t.Helper()
	profiling.Lock()
	defer profiling.Unlock()
	for path, want := range map[string]string{
		"": "goroutine", "cmdline": filepath.Base(os.Args[0]), "goroutine?debug=1": "goroutine profile:", "heap": "", "symbol": "num_symbols",
		"profile?seconds=1": "", "trace?seconds=0.1": "go 1",
	} {
		if status, body := Fetch(t, admin+"/debug/pprof/"+path); status != 200 || body == "" || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.80q", path, status, body)
		}
	}
	for _, path := range []string{"profile?seconds=61", "profile?seconds=x", "trace?seconds=61", "trace?seconds=NaN", "heap?seconds=61"} {
		if status, body := Fetch(t, admin+"/debug/pprof/"+path); status != 400 || !strings.Contains(body, "60") {
			t.Errorf("%s: %d %.80q", path, status, body)
		}
	}
}
