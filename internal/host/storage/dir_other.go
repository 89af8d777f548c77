//go:build !windows && (!unix || aix || solaris)

package storage

import (
	"errors"
	"os"
)

// Here files cannot be locked, so no data directory can be opened.

func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func (files) rename(*file) error { return errors.ErrUnsupported }

func syncDir(string) error { return errors.ErrUnsupported }
