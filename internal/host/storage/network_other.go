//go:build !linux

package storage

// NetworkFileSystem returns "": this system is not asked.
func NetworkFileSystem(string) string { return "" }
