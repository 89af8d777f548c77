//go:build !linux

package storage

import "os"

// syncData makes what was written to f durable.
func syncData(f *os.File) error { return f.Sync() }

// exchangeNames gives the file at from the name to, and deletes the file that had it.
func exchangeNames(from, to string) error { return os.Rename(from, to) }
