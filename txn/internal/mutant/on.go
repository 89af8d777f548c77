//go:build mutants

package mutant

import "sync/atomic"

var active atomic.Int64

// Switch switches m on and every other bug off. Call it while nothing runs.
func Switch(m Mutant) { active.Store(int64(m)) }

// On reports whether m is switched on.
func On(m Mutant) bool { return Mutant(active.Load()) == m }
