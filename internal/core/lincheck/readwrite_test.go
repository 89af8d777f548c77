package lincheck_test

import (
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/core/timeline"
)

// readWriteModel is the object of readwrite.go for Porcupine.
var readWriteModel = porcupine.Model{
	Init: func() any { return [2]uint64{} },
	Step: func(state, _, output any) (bool, any) {
		s, op := state.([2]uint64), output.(lincheck.ReadWrite)
		switch read, write := s[0], s[1]; op.Op {
		case timeline.OpWrite:
			return op.Time > write, [2]uint64{read, op.Time}
		case timeline.OpPeek:
			return op.Time >= write, [2]uint64{read, op.Time}
		default:
			return op.Time >= read, [2]uint64{op.Time, max(write, op.Time)}
		}
	},
}

// readWriteHistory returns operations that overlap, of an oracle that skips times, in which up to wrong answers are changed by a few.
func readWriteHistory(random *rand.Rand, size, wrong int) []lincheck.ReadWrite {
	var history []lincheck.ReadWrite
	var read, write uint64 = 1, 1
	for at := range int64(size) {
		o := lincheck.ReadWrite{Client: uint64(at), Op: timeline.OpWrite + timeline.Op(random.IntN(4)), Answered: random.IntN(8) > 0}
		o.Invocation, o.Completion = 10*at-random.Int64N(40), 10*at+random.Int64N(40)
		if random.IntN(4) == 0 {
			write += random.Uint64N(3)
		}
		switch o.Op {
		case timeline.OpWrite:
			write++
			o.Time = write
		case timeline.OpPeek:
			o.Time = write
		case timeline.OpApply:
			o.At = read + random.Uint64N(1+write-read)
			read = max(read, o.At)
			o.Time = read
		default:
			o.Time = read
		}
		history = append(history, o)
	}
	for range wrong {
		o := &history[random.IntN(size)]
		o.Time = max(1, o.At, o.Time+random.Uint64N(7)-3)
	}
	return history
}

func TestCheckReadWrite_AgreesWithPorcupine(t *testing.T) {
	const rounds = 5000
	for wrong := range 4 {
		accepted := 0
		for seed := range uint64(rounds) {
			random := rand.New(rand.NewPCG(seed, uint64(wrong)))
			history := readWriteHistory(random, 2+random.IntN(10), wrong)
			var operations []porcupine.Operation
			for _, o := range history {
				if o.Answered {
					operations = append(operations, porcupine.Operation{Call: o.Invocation, Return: o.Completion, Output: o})
				}
			}
			random.Shuffle(len(history), func(i, j int) { history[i], history[j] = history[j], history[i] })
			err, want := lincheck.CheckReadWrite(history), porcupine.CheckOperations(readWriteModel, operations)
			if (err == nil) != want {
				t.Fatalf("seed %d: Porcupine says %v, CheckReadWrite %v, of\n%v", seed, want, err, history)
			}
			if want {
				accepted++
			}
		}
		t.Logf("%d of %d histories with up to %d wrong answers are linearizable", accepted, rounds, wrong)
		if wrong == 0 && accepted < rounds || wrong > 0 && (accepted < rounds/20 || accepted > rounds*19/20) {
			t.Errorf("%d of %d histories with up to %d wrong answers are linearizable", accepted, rounds, wrong)
		}
	}
}

func TestCheckReadWrite_RefusesWhatIsWrongByItself(t *testing.T) {
	right := lincheck.ReadWrite{Op: timeline.OpApply, At: 5, Time: 5, Invocation: 1, Completion: 1, Answered: true}
	if err := lincheck.CheckReadWrite([]lincheck.ReadWrite{right}); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*lincheck.ReadWrite){
		"not applied":           func(o *lincheck.ReadWrite) { o.Time = 4 },
		"no time":               func(o *lincheck.ReadWrite) { o.At, o.Time = 0, 0 },
		"no operation":          func(o *lincheck.ReadWrite) { o.Op = timeline.OpIssue },
		"an unknown operation":  func(o *lincheck.ReadWrite) { o.Op = timeline.OpApply + 1 },
		"completed before that": func(o *lincheck.ReadWrite) { o.Completion = 0 },
	} {
		wrong := right
		change(&wrong)
		if lincheck.CheckReadWrite([]lincheck.ReadWrite{wrong}) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
