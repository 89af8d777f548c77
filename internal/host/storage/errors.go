package storage

import (
	"errors"
	"fmt"
)

var (
	// ErrFailed matches every error of a [Store] after a failed Save (I8). The wrapped cause is
	// the first failure.
	ErrFailed = errors.New("storage has failed and accepts no more writes")
	// ErrInUse matches the error of [Open] when another Store, in any process, has the
	// directory open.
	ErrInUse = errors.New("in use by another process")
)

// IdentityError means that a directory belongs to another node (I6).
type IdentityError struct {
	Dir  string
	Have uint64 // the node ID in the directory
	Want uint64 // the node ID in [Options]
}

// Error names both node IDs and the directory.
func (e *IdentityError) Error() string {
	return fmt.Sprintf("storage: data directory %s belongs to node %d, but this is node %d: "+
		"a node may only ever use its own directory", e.Dir, e.Have, e.Want)
}
