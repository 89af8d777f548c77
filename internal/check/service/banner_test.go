//go:build linux

package service_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/ports"
	"github.com/isotone/isotone/internal/check/trial"
)

// TestDev_PrintsCommandsThatWork runs what "isotone dev" prints, where it was started: by "go
// run", and as a binary that PATH does not have.
func TestDev_PrintsCommandsThatWork(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, start := range map[string][]string{"go run ./cmd/isotone": {"go", "run", "./cmd/isotone"}, trial.Binary: {trial.Binary}} {
		t.Run(filepath.Base(start[0]), func(t *testing.T) {
			port, err := ports.Free(3)
			if err != nil {
				t.Fatal(err)
			}
			command := append([]string{"env", "-C", root}, start...)
			p, err := chaos.Run("isotone dev", filepath.Join(t.TempDir(), "log"), os.Environ(), append(command, "dev", "--port", fmt.Sprint(port)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = syscall.Kill(-p.PID(), syscall.SIGINT) // with what "go run" has started
				p.ExpectExit()
				if _, err := p.WaitExit(chaos.ExitTimeout); err != nil {
					_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
					t.Error(err)
				}
			})
			await.Done(t, 2*time.Minute, func() (bool, string) { // it may have to be built
				if p.Exited() {
					t.Fatalf("it did not come up:\n%s", p.Log())
				}
				return strings.Contains(p.Log(), "Ctrl-C"), p.Log()
			})
			ran := 0
			for line := range strings.Lines(p.Log()) {
				at := strings.Index(line, " "+name+" ") // behind what the command is for
				if at < 0 || strings.Contains(line, " demo ") {
					continue
				}
				ran++
				line = strings.TrimSpace(line[at:])
				line = strings.Replace(line, " bench ", " bench --violations "+filepath.Join(t.TempDir(), "none")+" ", 1)
				line = strings.Replace(line, "-d 3s", "-d 100ms", 1)
				await.Done(t, chaos.ReadyTimeout, func() (bool, string) { // what status reads is up to a second old
					cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
					cmd.Dir = root
					out, err := cmd.CombinedOutput()
					return err == nil, fmt.Sprintf("%s: %v\n%s", line, err, out)
				})
			}
			if ran != 6 {
				t.Errorf("it prints %d commands that begin with %s, want timestamp, id, status, lock and two of bench:\n%s", ran, name, p.Log())
			}
		})
	}
}
