package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// FirstName is the file in a data directory without data that permits the first start of a node
// there. It lies on the volume that is to have the data, so a volume that is not mounted has none.
const FirstName = "first-start"

// PermitFirst creates a data directory, if it does not exist, and permits the first start there. If
// the directory has data, it changes nothing; if it had data, it fails (see [CheckNew]). It takes no lock, which would belong to the user who
// calls it, and not to that of the node.
func PermitFirst(dir string) (hasData bool, err error) {
	if err := makeDir(dir); err != nil {
		return false, err
	}
	if hasData, err = HasData(dir); err != nil || hasData {
		return hasData, err
	}
	if err = CheckNew(dir); err == nil {
		err = os.WriteFile(filepath.Join(dir, FirstName), nil, 0o600)
	}
	return hasData, err
}

// FirstPermitted reports whether the first start of a node is permitted in a data directory.
func FirstPermitted(dir string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, FirstName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// endFirst ends the permission, which holds for one start: the directory has data now.
func (s *Store) endFirst() error {
	err := os.Remove(filepath.Join(s.dir, FirstName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("storage: the permission of the first start: %w", err)
	}
	return nil
}
