//go:build !unix

package operator

// isOwn cannot tell here whose a file is.
func isOwn(string) bool { return true }
