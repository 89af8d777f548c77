package lincheck_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// oracleModel is the object of check.go for Porcupine. The state is the highest
// timestamp handed out.
var oracleModel = porcupine.Model{
	Init: func() any { return isotone.Timestamp{} },
	Step: func(state, _, output any) (bool, any) {
		highest, op := state.(isotone.Timestamp), output.(lincheck.Operation)
		if !op.Answered {
			return true, highest // removed from the history
		}
		return highest.Before(op.Range.First), op.Range.Last()
	},
}

// porcupineCheck lets Porcupine decide. On equal times it puts calls before
// returns, which is "equal means concurrent", as Check has it. It wants a return
// for each call: that of an unanswered operation comes after everything else.
func porcupineCheck(history []lincheck.Operation) bool {
	operations := make([]porcupine.Operation, len(history))
	for i, op := range history {
		operations[i] = porcupine.Operation{Call: op.Invocation, Return: op.Completion, Output: op}
		if !op.Answered {
			operations[i].Return = math.MaxInt64
		}
	}
	return porcupine.CheckOperations(oracleModel, operations)
}

// TestCheck_AgreesWithPorcupine compares verdicts on random small histories:
// correct ones, slightly damaged ones and wild ones, with coarse and fine clocks.
func TestCheck_AgreesWithPorcupine(t *testing.T) {
	generators := map[string]func(*rand.Rand) []lincheck.Operation{
		"correct": func(random *rand.Rand) []lincheck.Operation {
			return linearizableHistory(random, 2+random.IntN(12), 1+random.IntN(5))
		},
		"damaged": func(random *rand.Rand) []lincheck.Operation {
			history := linearizableHistory(random, 2+random.IntN(12), 1+random.IntN(5))
			for range 1 + random.IntN(3) {
				mutate(random, history)
			}
			return history
		},
		"coarse clock": func(random *rand.Rand) []lincheck.Operation {
			history := linearizableHistory(random, 2+random.IntN(12), 1+random.IntN(5))
			mutate(random, history)
			coarsen(history, 2+random.Int64N(4))
			return history
		},
		"wild": func(random *rand.Rand) []lincheck.Operation {
			return arbitraryHistory(random, 1+random.IntN(6))
		},
	}
	for name, generate := range generators {
		t.Run(name, func(t *testing.T) {
			const rounds = 5000
			accepted := 0
			for seed := range uint64(rounds) {
				random := rand.New(rand.NewPCG(seed, 0))
				history := generate(random)
				random.Shuffle(len(history), func(i, j int) { history[i], history[j] = history[j], history[i] })
				err, want := lincheck.Check(history), porcupineCheck(history)
				if (err == nil) != want {
					t.Fatalf("seed %d: Porcupine says %v, Check says %v, of\n%s", seed, want, err, list(history))
				}
				if want {
					accepted++
				}
			}
			t.Logf("%d of %d histories linearizable", accepted, rounds)
			if name == "correct" && accepted < rounds {
				t.Error("a correct oracle made a history that is not linearizable")
			}
			if name != "correct" && (accepted < rounds/20 || accepted > rounds*19/20) {
				t.Error("the generator hardly ever gives one of the two verdicts")
			}
		})
	}
}

func list(history []lincheck.Operation) string {
	var b strings.Builder
	for _, op := range history {
		fmt.Fprintf(&b, "%+v\n", op)
	}
	return b.String()
}
