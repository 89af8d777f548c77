package listen

import (
	"fmt"
	"os"
	"path/filepath"
)

// shorten returns another path of the same file, short enough for a socket, until done is called.
func shorten(path string) (short string, done func(), err error) {
	if len(path) <= unixPathMax {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	short = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	if _, err := os.Stat(filepath.Dir(short)); err != nil || len(short) > unixPathMax {
		_ = dir.Close()
		return "", nil, tooLong(path)
	}
	return short, func() { _ = dir.Close() }, nil
}
