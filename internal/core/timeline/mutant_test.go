//go:build mutants

package timeline_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/isotone/isotone/internal/core/mutant"
)

// TestMutants_OfTheTableAreNoticed by the rules, or by the simulation of owners.
func TestMutants_OfTheTableAreNoticed(t *testing.T) {
	defer mutant.Switch(mutant.None)
	for _, m := range mutant.All() {
		if !m.IsOfTable() {
			continue
		}
		mutant.Switch(m)
		if err := errors.Join(wrongRefusal(), wrongWait()); err != nil {
			t.Logf("%v: %v", m, err)
		} else if seed, err := search(2000); err != nil {
			t.Logf("%v: seed %d: %v", m, seed, err)
		} else {
			t.Errorf("%v is not noticed", m)
		}
	}
}

// search simulates until something is wrong.
func search(seeds uint64) (seed uint64, err error) {
	defer func() {
		if found, ok := recover().(wrong); ok {
			err = found
		}
	}()
	for ; seed < seeds; seed++ {
		run(catcher{}, seed)
	}
	return seed, nil
}

// wrong is what a simulation found.
type wrong struct{ error }

// catcher ends a simulation with a panic.
type catcher struct{}

func (catcher) Helper() {}

func (catcher) Fatalf(format string, args ...any) { panic(wrong{fmt.Errorf(format, args...)}) }
