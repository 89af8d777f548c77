//go:build !unix

package main

// openFiles returns 0: unknown.
func openFiles() uint64 { return 0 }

// isOwn cannot tell here whose a file is.
func isOwn(string) bool { return true }
