package txn_test

import (
	"context"

	"github.com/isotone/isotone/txn"
)

// spanHooks appends the name of each step when it begins, and with a dot when it ends.
func spanHooks(spans *[]string) txn.Hooks {
	return txn.Hooks{Span: func(ctx context.Context, name string) (context.Context, func(error)) {
		*spans = append(*spans, name)
		return ctx, func(error) { *spans = append(*spans, name+".") }
	}}
}
