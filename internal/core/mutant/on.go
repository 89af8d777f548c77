//go:build mutants

package mutant

var (
	current Mutant
	reached []bool // nil unless Reached runs
)

// Switch turns one bug on and all others off. Not for concurrent use.
func Switch(m Mutant) { current = m }

// On reports whether the bug is switched on.
func On(m Mutant) bool {
	if reached != nil {
		reached[m] = true
	}
	return current == m
}

// Reached runs without any bug, and returns for each whether On was asked about it. One that was not would have changed nothing.
// Not for concurrent use.
func Reached(run func()) []bool {
	Switch(None)
	reached = make([]bool, count)
	defer func() { reached = nil }()
	run()
	return reached
}
