//go:build mutants

package mutant

var current Mutant

// Switch turns one bug on and all others off. Not for concurrent use.
func Switch(m Mutant) { current = m }

// On reports whether the bug is switched on.
func On(m Mutant) bool { return current == m }
