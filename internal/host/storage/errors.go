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

// CorruptError means that the data on disk is not what this node saved. Only [Open] returns
// it, and leaves the directory unchanged.
type CorruptError struct {
	Path   string // the file
	Record string // the record, page or sector in it, for example "log entry 17"
	Reason string // what is wrong with it
}

// Error names the record, the file, the reason, and what to do about it.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("storage: %s in %s is damaged: %s; "+
		"this node's copy cannot be trusted and must not take part again: move its data directory away, "+
		"and leave the data of the other nodes alone, they go on as long as they are a majority",
		e.Record, e.Path, e.Reason)
}

// corrupt returns a CorruptError without its Path, which Open fills in.
func corrupt(record, format string, args ...any) *CorruptError {
	return &CorruptError{Record: record, Reason: fmt.Sprintf(format, args...)}
}

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

// FormatError means that a file was written by another version of this program.
type FormatError struct {
	Path  string
	Have  uint32 // the format of the file
	Reads uint32 // the newest format that this version reads
}

// Error names the file and both formats.
func (e *FormatError) Error() string {
	return fmt.Sprintf("storage: %s has format %d, and this version reads formats up to %d; "+
		"start the version that wrote it, or a newer one",
		e.Path, e.Have, e.Reads)
}

// LimitError means that something was too large to be stored. It is the cause of a failed
// Save.
type LimitError struct {
	What string // for example "log entry 17"
	Size int    // bytes
	Max  int    // bytes
}

// Error names what was too large, and the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s has %d bytes, the limit is %d", e.What, e.Size, e.Max)
}

// panicError is a panic or memory fault inside bbolt, caught by guarded.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("page store panicked: %v", e.value) }
