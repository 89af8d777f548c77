//go:build linux

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/check/namespace"
)

// volumeSize is many times the size of a node's data, and still filled at once.
const volumeSize = 16 << 20

// volume is a small file system, visible only to the processes of one host.
type volume struct {
	host *namespace.Host
	dir  string // where it is mounted
}

// mountScript mounts an empty file system on the directory $1: in the file $2 if possible,
// because fsync has no effect on one in memory.
const mountScript = `truncate -s $3 "$2"
	# No blocks reserved for root: the node may run as root.
	mkfs.ext4 -q -F -m 0 "$2" && mount -o loop "$2" "$1" || mount -t tmpfs -o size=$3 isotone "$1"`

// VolumesDenied returns why nodes can have no file systems of their own here, or "".
var VolumesDenied = sync.OnceValue(func() string {
	return namespace.Try("--mount", `dir=$(mktemp -d); trap 'rm -r "$dir.img"; umount "$dir"; rmdir "$dir"' EXIT
		set -- "$dir" "$dir.img" 16777216; `+mountScript)
})

// newVolume makes a file system in the file dir.img and mounts it at dir. The loop device
// goes away with the mount, and the mount with the host.
func newVolume(t testing.TB, h *namespace.Host, dir string) *volume {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.Do("sh", "-ec", mountScript, "sh", dir, dir+".img", fmt.Sprint(volumeSize)); err != nil {
		t.Fatal(err)
	}
	if h.Do("grep", "-q", " "+dir+" ext4 ", "/proc/mounts") != nil {
		t.Logf("%s is in memory: there are no loop devices here", dir)
	}
	return &volume{host: h, dir: dir}
}

// fill takes all free blocks, large pieces first.
func (v *volume) fill() error {
	return v.host.Do("sh", "-c", `
		for size in 1048576 65536 4096 1024; do
			while fallocate -o "$(stat -c %s "$0" 2>/dev/null || echo 0)" -l $size "$0" 2>/dev/null; do :; done
		done
		test -s "$0"`, v.filler())
}

// free gives the blocks back.
func (v *volume) free() error { return v.host.Do("rm", "-f", v.filler()) }

func (v *volume) filler() string { return filepath.Join(v.dir, "filler") }
