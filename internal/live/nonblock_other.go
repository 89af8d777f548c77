//go:build !unix

package live

const openNonblock = 0
