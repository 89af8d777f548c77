package bench

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testOptions returns options for a short load of a test.
func testOptions(change func(*Options)) *Options {
	o := Default()
	o.Connections, o.Requests, o.Duration = 4, 200, 0
	o.Violations = "must-not-be-written.jsonl"
	if change != nil {
		change(&o)
	}
	return &o
}
