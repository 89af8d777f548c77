//go:build unix && !aix && !solaris

package storage

import "os"

// RenameOnly has names not be exchanged, as on some file systems, and returns what ends that.
func RenameOnly() (restore func()) {
	former := exchange
	exchange = os.Rename
	return func() { exchange = former }
}
