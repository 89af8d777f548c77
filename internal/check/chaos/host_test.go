//go:build linux

package chaos_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/namespace"
	"github.com/isotone/isotone/internal/check/trial"
)

// TestHost_LeavesNothingBehind fills a disk of a cluster on hosts of its own, and
// looks for what is left when the cluster is gone.
func TestHost_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	if why := namespace.NetworkDenied() + chaos.VolumesDenied(); why != "" {
		t.Skip(why)
	}
	var dir string
	t.Run("cluster", func(t *testing.T) {
		o := trial.Options()
		o.Network, o.Volumes = true, true
		c := chaos.StartCluster(t, o)
		dir = c.Dir
		if len(loops(t, dir)) == 0 {
			t.Log("the volumes are in memory")
		}
		if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), dir) {
			t.Errorf("a mount of a host is visible outside; %v", err)
		}
	})
	for deadline := time.Now().Add(chaos.ExitTimeout); len(loops(t, dir)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("loop devices are left: %v", loops(t, dir))
		}
	}
}

// loops returns the files below dir that loop devices use.
func loops(t *testing.T, dir string) (files []string) {
	t.Helper()
	paths, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(b), dir) {
			files = append(files, strings.TrimSpace(string(b)))
		}
	}
	return files
}
