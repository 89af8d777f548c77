package backup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/isotone/isotone/internal/host/storage"
)

// ErrExists matches the error of [Write] when there is a file already.
var ErrExists = errors.New("the file exists already")

// partSuffix ends the name of a file that is being written.
const partSuffix = ".part"

// Write writes a file as a whole, readable by its owner only: into a temporary file, which is
// made durable and then renamed. A crash leaves the former file, or none, or the whole new one;
// beside it perhaps a file whose name ends in ".part" and that nothing reads. Unless replace is
// set, an existing file is an error that matches [ErrExists]. step, if not nil, is called with
// the name of each step that was done, for tests.
func Write(path string, b []byte, replace bool, step func(string)) error {
	if step == nil {
		step = func(string) {}
	}
	if _, err := os.Lstat(path); err == nil && !replace {
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*"+partSuffix) // mode 0600
	if err != nil {
		return err
	}
	step("created")
	if err := fill(f, b, step); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	step("synced")
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	step("renamed")
	return storage.SyncDir(dir)
}

// fill writes and closes a file.
func fill(f *os.File, b []byte, step func(string)) error {
	_, err := f.Write(b[:len(b)/2])
	if err == nil {
		step("begun")
		_, err = f.Write(b[len(b)/2:])
	}
	if err == nil {
		step("written")
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Read returns the content of a backup or a seed.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, sizeMax+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > sizeMax:
		return nil, fmt.Errorf("more than %d bytes are no backup", sizeMax)
	}
	return b, nil
}
