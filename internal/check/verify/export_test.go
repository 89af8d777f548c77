package verify

// Hurried has faults begin more often, and last shorter.
func Hurried(o Options) Options {
	o.hurry = 8
	return o
}
