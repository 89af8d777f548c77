package mutant

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

var words = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])|([a-z])([0-9])`)

// TestNames_FollowFromTheConstants, so none is missing, twice or that of another.
func TestNames_FollowFromTheConstants(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "mutant.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var constants []string
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, spec := range d.Specs {
				constants = append(constants, spec.(*ast.ValueSpec).Names[0].Name)
			}
		}
	}
	if len(constants) != int(count)+1 {
		t.Fatalf("%d constants, want %d bugs and count", len(constants), count)
	}
	for m, name := range constants[:count] {
		if want := strings.ToLower(words.ReplaceAllString(name, "$1$3$5-$2$4$6")); names[m] != want {
			t.Errorf("%s is called %q, want %q", name, names[m], want)
		}
	}
}
