package snowflake_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/snowflake"
)

func TestMain(m *testing.M) {
	// Calls to a generator are cheap; -rapid.checks and -rapid.steps override these.
	_ = flag.Set("rapid.checks", "2000")
	_ = flag.Set("rapid.steps", "60")
	goleak.VerifyTestMain(m)
}

// epoch is the start of the tests' clocks: a millisecond well inside Twitter's layout.
const epoch = int64(1_700_000_000_000)

// newGenerator returns a generator, or fails the test.
func newGenerator(t testing.TB, worker int, o snowflake.Options) *snowflake.Generator {
	t.Helper()
	g, err := snowflake.NewGenerator(worker, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// next returns an ID, or fails the test.
func next(t testing.TB, g *snowflake.Generator) snowflake.ID {
	t.Helper()
	id, err := g.TryNext()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// fill returns a batch of n IDs, or fails the test.
func fill(t testing.TB, g *snowflake.Generator, n int) []snowflake.ID {
	t.Helper()
	ids := make([]snowflake.ID, n)
	if err := g.TryFill(ids); err != nil {
		t.Fatalf("%d IDs: %v", n, err)
	}
	return ids
}
