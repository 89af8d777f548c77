//go:build linux

package chaos

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Build compiles the isotone command of this module, with the tag faults, into dir and returns the
// path of the binary.
func Build(dir string) (string, error) {
	return build(dir, "isotone", "github.com/isotone/isotone/cmd/isotone", "-tags=faults")
}

// build compiles a command with some flags of go build, and returns the path of the binary, dir/name. To link
// it takes seconds, and many packages of tests need it. So it is linked in the user's cache, one process at a
// time, where Go links again only what has changed.
func build(dir, name, command string, flags ...string) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(cache, name+".lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("chaos: lock %s: %w", lock.Name(), err)
	}
	linked, path := filepath.Join(cache, name), filepath.Join(dir, name)
	// From a temporary directory beside it Go renames the binary, so that it is never there in part. This process
	// must not write the copy: what it starts meanwhile would have the file open for writing, and nobody
	// could run it.
	return path, runAll(
		slices.Concat([]string{"env", "GOTMPDIR=" + cache, "go", "build"}, flags, []string{"-o", linked, command}),
		[]string{"cp", linked, path},
	)
}

// cacheDir returns the directory of these tests in the user's cache.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	dir := filepath.Join(cache, "isotone-test")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	return dir, err
}

// runAll runs commands one after the other.
func runAll(commands ...[]string) error {
	for _, command := range commands {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("chaos: %s: %w\n%s", strings.Join(command, " "), err, bytes.TrimSpace(out))
		}
	}
	return nil
}
