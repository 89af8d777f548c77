//go:build linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// PreviousRelease is the commit of the previous release. Nodes of the two versions must form
// one cluster, in any mixture, and each version must read the data of the other.
//
// Each release replaces it by its own commit, so that the next version is tested against that
// one.
const PreviousRelease = "a4b419bb52bdea38ac11ec647560a18403ab8a26"

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
		return "", fmt.Errorf("chaos: %w", err)
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
	if err != nil {
		return "", fmt.Errorf("chaos: %w", err)
	}
	dir := filepath.Join(cache, "isotone-test")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("chaos: %w", err)
	}
	return dir, nil
}

// ErrNoHistory means that the sources are not in a git clone that has [PreviousRelease].
var ErrNoHistory = errors.New("chaos: no commit " + PreviousRelease[:12] + " of the previous release here; in a git clone, " +
	"\"git fetch --unshallow\" or \"git fetch origin " + PreviousRelease + "\" brings it")

// BuildPrevious compiles the isotone command of [PreviousRelease] into dir, and returns the path of
// the binary. The sources go to a directory of the user's cache that has the name of the commit: from
// the same directory Go compiles only once. The test must run in the directory of its package. Without
// that commit the error matches [ErrNoHistory].
func BuildPrevious(dir string) (string, error) {
	sources, err := previousSources()
	if err != nil {
		return "", err
	}
	return build(dir, "isotone-previous", "./cmd/isotone", "-C", sources, "-buildvcs=false")
}

// previousSources returns the directory with the sources of the previous release, which it makes if
// it is not there.
func previousSources() (string, error) {
	parent, err := cacheDir()
	if err != nil {
		return "", err
	}
	sources := filepath.Join(parent, PreviousRelease)
	if _, err := os.Stat(sources); err == nil {
		return sources, nil
	}
	// Below the root of the module, git archive would take only what is below.
	root, err := filepath.Abs("../../..")
	if err != nil {
		return "", fmt.Errorf("chaos: %w", err)
	}
	if out, err := exec.Command("git", "-C", root, "cat-file", "-e", PreviousRelease+":go.mod").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w (git: %w: %s)", ErrNoHistory, err, bytes.TrimSpace(out))
	}
	made, err := os.MkdirTemp(parent, "new-")
	if err != nil {
		return "", fmt.Errorf("chaos: %w", err)
	}
	defer os.RemoveAll(made)
	archive := filepath.Join(made, "previous.tar")
	complete := filepath.Join(made, "sources")
	if err := runAll(
		[]string{"mkdir", complete},
		[]string{"git", "-C", root, "archive", "--output", archive, PreviousRelease},
		[]string{"tar", "-x", "-f", archive, "-C", complete},
	); err != nil {
		return "", err
	}
	// Another test may have been faster.
	if err := os.Rename(complete, sources); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return "", fmt.Errorf("chaos: %w", err)
	}
	return sources, nil
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
