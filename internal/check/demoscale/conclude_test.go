package demoscale

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/proxy/balance"
)

// TestConclude_SaysThatThereIsNothingToCompare where a busy machine answered too little.
func TestConclude_SaysThatThereIsNothingToCompare(t *testing.T) {
	runs := []Measured{{Name: string(balance.Random), Answers: 3, Rate: 10}, {Name: string(balance.LeastBusy)}}
	if says := concludeStrategies(runs); len(says) != 1 || !strings.Contains(says[0], "--duration") {
		t.Errorf("%q", says)
	}
	runs[1].Answers, runs[1].Rate = 6, 20
	if says := concludeStrategies(runs); len(says) != 1 || !strings.Contains(says[0], "2.0 times as fast as random") {
		t.Errorf("%q", says)
	}
}
