package verify

// NetworkDenied is networkDenied.
func NetworkDenied() string { return networkDenied() }

// Hurried has faults begin more often, and last shorter.
func Hurried(o Options) Options {
	o.hurry = 8
	return o
}
