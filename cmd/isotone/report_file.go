package main

import (
	"errors"
	"io"
	"os"
)

// reportFile is a file that a command writes when its run is over. It is opened before, so that a wrong
// name fails at once and not after an hour. A nil *reportFile stands for no file.
type reportFile struct{ file *os.File }

// openReport opens a file that a flag names, or returns nil if that is empty. It truncates nothing yet: a
// failed run keeps the old report.
func openReport(flag, name string) (*reportFile, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, usagef("%s: %v", flag, err)
	}
	return &reportFile{file}, nil
}

// write writes and closes the file.
func (f *reportFile) write(report func(io.Writer) error) error {
	if f == nil {
		return nil
	}
	file := f.file
	f.file = nil
	err := file.Truncate(0)
	if err == nil {
		err = report(file)
	}
	return errors.Join(err, file.Close())
}

// writeText is write for a report that is made as a whole, only if there is a file.
func (f *reportFile) writeText(report func() string) error {
	return f.write(func(w io.Writer) error {
		_, err := io.WriteString(w, report())
		return err
	})
}

// discard closes the file unless it was written, and removes it if it is new.
func (f *reportFile) discard() {
	if f == nil || f.file == nil {
		return
	}
	info, err := f.file.Stat()
	_ = f.file.Close()
	if err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		_ = os.Remove(f.file.Name())
	}
}
