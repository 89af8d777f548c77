package structure_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files of the public API")

// public are the packages that other modules import, by directory.
var public = []string{
	".", "client", "snowflake", "disruptor", "txn", "txn/boltstore", "txn/pgstore", "txn/redisstore",
	"txn/storetest", "adapters/tikv/clientgo", "adapters/k8slease", "fence",
}

// apiDir has the public API, a file for each package, so that a change shows which of it others notice.
const apiDir = "internal/check/structure/testdata/api"

func TestAPI_IsWhatItsFilesSay(t *testing.T) {
	var files []string
	for _, pkg := range public {
		file := strings.ReplaceAll(pkg, "/", "_") + ".txt"
		if pkg == "." {
			file = "isotone.txt"
		}
		files = append(files, file)
		name, got := filepath.Join(apiDir, file), apiOf(t, pkg)
		if *update {
			if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if want, err := os.ReadFile(name); err != nil || string(want) != got {
			t.Errorf("the API of package %s is not that of %s (%v). If the change is meant, say it in CHANGELOG.md and run: "+
				"go test ./internal/check/structure -run API -update", pkg, name, err)
		}
	}
	entries, err := os.ReadDir(apiDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(files, e.Name()) {
			t.Errorf("%s: no such package is public", e.Name())
		}
	}
}

// apiOf returns the exported declarations of a package without comments and bodies, in the order of their
// text. Declarations that several systems have in common appear once.
func apiOf(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(names), err)
	}
	var all []string
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			all = append(all, declarations(t, fset, decl)...)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "\n") + "\n"
}

// declarations returns the text of each declaration in decl. A const of a group keeps the group, since its
// value may follow from those before it.
func declarations(t *testing.T, fset *token.FileSet, decl ast.Decl) (texts []string) {
	t.Helper()
	text := func(node any) string {
		var b bytes.Buffer
		if err := printer.Fprint(&b, fset, node); err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(b.String(), "\n\n", "\n")
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && !isExported(d.Recv.List[0].Type) {
			return nil
		}
		d.Body = nil
		return []string{text(d)}
	case *ast.GenDecl:
		if d.Tok == token.IMPORT {
			return nil
		}
		if d.Tok == token.CONST {
			return []string{text(d)}
		}
		for _, spec := range d.Specs {
			texts = append(texts, text(&ast.GenDecl{Tok: d.Tok, Specs: []ast.Spec{spec}}))
		}
	}
	return texts
}

// isExported reports whether the type of a receiver is exported.
func isExported(receiver ast.Expr) bool {
	for {
		switch e := receiver.(type) {
		case *ast.StarExpr:
			receiver = e.X
		case *ast.IndexExpr:
			receiver = e.X
		case *ast.IndexListExpr:
			receiver = e.X
		case *ast.Ident:
			return e.IsExported()
		default:
			return true
		}
	}
}

// TestAPI_NoticesWhatChanges tests the test.
func TestAPI_NoticesWhatChanges(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package a\n\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return apiOf(t, dir)
	}
	before := write("// A is first.\ntype A struct{ B int; c int }\n\nfunc (A) D() { println() }\n\nfunc e() {}\n")
	if same := write("type A struct{ B int; f, g int }\n\nfunc (A) D() {}\n\ntype h[K any] int\n\nfunc (*h[K]) I() {}\n"); same != before {
		t.Errorf("what is not exported shows:\n%s\n%s", before, same)
	}
	for _, text := range []string{
		"type A struct{ B int }\n\nfunc (*A) D() {}\n", "type A struct{ B uint }\n\nfunc (A) D() {}\n",
		"type A struct{ B int }\n", "type A struct{ B int }\n\nfunc (A) D() {}\n\nvar E error\n",
	} {
		if write(text) == before {
			t.Errorf("no change:\n%s", text)
		}
	}
}
