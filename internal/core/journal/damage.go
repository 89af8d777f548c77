package journal

import (
	"errors"
	"fmt"
	"io"
)

// CorruptError means that the data on disk is not what this node saved. Only what
// reads a directory returns it, and leaves the directory unchanged.
type CorruptError struct {
	Path   string // the file
	Record string // the record or sector in it, for example "log entry 17"
	Reason string // what is wrong with it
}

// Error names the record, the file, the reason, and what to do about it.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("storage: %s in %s is damaged: %s; "+
		"this node's copy cannot be trusted and must not take part again: move its data directory away, "+
		"and leave the data of the other nodes alone, they go on as long as they are a majority",
		e.Record, e.Path, e.Reason)
}

// Corrupt returns a CorruptError without its Path, which internal/host/storage fills in.
func Corrupt(record, format string, args ...any) *CorruptError {
	return &CorruptError{Record: record, Reason: fmt.Sprintf(format, args...)}
}

// FormatError means that a file was written by another version of this program.
type FormatError struct {
	Path  string
	Have  uint32 // the format of the file; 0 for the files of versions before the first release
	Reads uint32 // the format that this version reads
}

// Error names the file and both formats.
func (e *FormatError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("storage: %s was written by a version before the first release, and this version reads format %d; "+
			"start the version that wrote it", e.Path, e.Reads)
	}
	return fmt.Sprintf("storage: %s has format %d, and this version reads format %d; "+
		"start the version that wrote it",
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

// ReadAt fills b. A file that ends too early is damaged; other errors are those of the disk.
func ReadAt(file io.ReaderAt, b []byte, offset int64) error {
	switch n, err := file.ReadAt(b, offset); {
	case n == len(b):
		return nil
	case errors.Is(err, io.EOF):
		return Corrupt("the file", "it ends at byte %d", offset+int64(n))
	default:
		return fmt.Errorf("storage: %w", err)
	}
}
