package snowflake_test

import (
	"testing"
	"time"

	"github.com/isotone/isotone/snowflake"
)

func TestGenerator_DoesNotAllocate(t *testing.T) {
	ctx := t.Context()
	clock := &manual{epoch}
	ticking := func() int64 { clock.ms++; return clock.ms }
	dst := make([]snowflake.ID, 5000)
	buf := make([]byte, 0, 64)
	exhausted := newGenerator(t, 0, snowflake.Options{Now: func() int64 { return epoch }, AheadMax: time.Nanosecond})
	fill(t, exhausted, 4096)
	for kind, g := range map[string]*snowflake.Generator{
		"a clock of the caller": newGenerator(t, 0, snowflake.Options{Now: ticking}),
		"the system clock":      newGenerator(t, 0, snowflake.Options{AheadMax: time.Hour}),
	} {
		for name, call := range map[string]func() error{
			"TryNext": func() error { _, err := g.TryNext(); return err },
			"TryFill": func() error { return g.TryFill(dst) },
			"Next":    func() error { _, err := g.Next(ctx); return err },
			"NextN":   func() error { return g.NextN(ctx, dst) },
			"a refusal": func() error {
				if _, err := exhausted.TryNext(); err != snowflake.ErrExhausted {
					return err
				}
				return nil
			},
			"AppendDecimal": func() error { buf = dst[0].AppendDecimal(buf[:0]); return nil },
		} {
			var err error
			allocs := testing.AllocsPerRun(200, func() {
				if e := call(); e != nil {
					err = e
				}
			})
			if err != nil || allocs != 0 {
				t.Errorf("%s, %s: %v allocations, %v", kind, name, allocs, err)
			}
		}
	}
}
