//go:build linux && !portable

package loop_test

const portable = false
