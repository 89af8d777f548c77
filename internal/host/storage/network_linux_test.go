package storage

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestNetworkFileSystem_NamesTheFileSystem: a directory of a test is on a local file system or on none that is known here;
// one that is told to be on another is named.
func TestNetworkFileSystem_NamesTheFileSystem(t *testing.T) {
	dir := t.TempDir()
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	before, known := networkFileSystems[uint32(s.Type)]
	if got := NetworkFileSystem(dir); got != before {
		t.Errorf("got %q, want %q", got, before)
	}
	networkFileSystems[uint32(s.Type)] = "a test"
	defer func() {
		if delete(networkFileSystems, uint32(s.Type)); known {
			networkFileSystems[uint32(s.Type)] = before
		}
	}()
	if got := NetworkFileSystem(dir); got != "a test" {
		t.Errorf("got %q", got)
	}
	if got := NetworkFileSystem(dir + "/missing"); got != "" {
		t.Errorf("a directory that is missing: %q", got)
	}
}
