package structure_test

import (
	"go/ast"
	"go/token"
	"maps"
	"strings"
	"testing"
)

// submissions are the places where a front hands a batch to its backend. Each has asked access.Session.Timeline before which timeline the
// client gets, and its ways to be asked are in TestOrders_NobodyGetsAnother of internal/server.
var submissions = map[string]int{
	"internal/front/grpc/grpc.go": 1, "internal/front/grpc/turn.go": 1, "internal/front/http1/handler.go": 1, "internal/front/pd/tso.go": 1,
	"internal/front/resp/conn.go": 1, "internal/front/web/timestamp.go": 1,
}

// TestOrders_EverySubmissionIsKnown, so that no new one forgets to ask whose timeline it is.
func TestOrders_EverySubmissionIsKnown(t *testing.T) {
	found := map[string]int{}
	for _, src := range parseModule(t, token.NewFileSet()) {
		if src.test || !strings.HasPrefix(src.pkg, "internal/front") {
			continue
		}
		ast.Inspect(src.file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 1 {
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Submit" {
					found[src.path]++
				}
			}
			return true
		})
	}
	if !maps.Equal(found, submissions) {
		t.Errorf("batches are submitted in %v, want %v: ask access.Session.Timeline for each, and add the ways to ask it to TestOrders_NobodyGetsAnother", found, submissions)
	}
}
