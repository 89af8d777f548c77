//go:build linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// PreviousRelease is the commit of the previous release. Nodes of the two versions must form
// one cluster, in any mixture, and each version must read the data of the other.
//
// Each release replaces it by its own commit, so that the next version is tested against that
// one.
const PreviousRelease = "a4b419bb52bdea38ac11ec647560a18403ab8a26"

// ErrNoHistory means that the sources are not in a git clone that has [PreviousRelease].
var ErrNoHistory = errors.New("chaos: no commit " + PreviousRelease[:12] + " of the previous release here; in a git clone, " +
	"\"git fetch --unshallow\" or \"git fetch origin " + PreviousRelease + "\" brings it")

// BuildPrevious compiles the isotone command of [PreviousRelease] into dir, where its
// sources go as well, and returns the path of the binary. The test must run in the
// directory of its package. Without that commit the error matches [ErrNoHistory].
func BuildPrevious(dir string) (string, error) {
	// Below the root of the module, git archive would take only what is below.
	root, err := filepath.Abs("../../..")
	if err != nil {
		return "", fmt.Errorf("chaos: %w", err)
	}
	if out, err := exec.Command("git", "-C", root, "cat-file", "-e", PreviousRelease+":go.mod").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w (git: %w: %s)", ErrNoHistory, err, bytes.TrimSpace(out))
	}
	sources := filepath.Join(dir, "previous")
	if err := os.Mkdir(sources, 0o700); err != nil {
		return "", fmt.Errorf("chaos: %w", err)
	}
	archive := filepath.Join(dir, "previous.tar")
	path := filepath.Join(dir, "isotone-previous")
	// With -trimpath the directory does not count, and what was compiled before is in Go's cache.
	for _, command := range [][]string{
		{"git", "-C", root, "archive", "--output", archive, PreviousRelease},
		{"tar", "-x", "-f", archive, "-C", sources},
		{"go", "build", "-C", sources, "-buildvcs=false", "-trimpath", "-o", path, "./cmd/isotone"},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("chaos: %s of the previous release: %w\n%s", command[0], err, bytes.TrimSpace(out))
		}
	}
	return path, nil
}
