//go:build !linux

package ports

// lock reserves nothing: other processes may find the same ports here.
func lock(int, int) (bool, error) { return true, nil }

func unlock() error { return nil }
