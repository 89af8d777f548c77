package structure_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func report(t *testing.T, faults []string) {
	t.Helper()
	for _, fault := range faults {
		t.Error(fault)
	}
}

// source is one file of the module.
type source struct {
	pkg  string // directory inside the module, "." for the root
	path string // as faults print it
	test bool   // a _test.go file
	file *ast.File
}

// row is one line of the table.
type row struct{ ours, others []string }

func parseTable(t *testing.T, text string) map[string]row {
	t.Helper()
	table := map[string]row{}
	for line := range strings.Lines(text) {
		pkg, allowed, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		if _, twice := table[pkg]; twice {
			t.Fatalf("%s has two lines", pkg)
		}
		ours, others, _ := strings.Cut(allowed, ";")
		table[pkg] = row{ours: strings.Fields(ours), others: strings.Fields(others)}
	}
	return table
}

// parseModule parses every Go file of the module, whatever its build
// constraints, since the rules hold on every platform.
func parseModule(t *testing.T, fset *token.FileSet) (sources []source) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			_, statErr := os.Stat(filepath.Join(name, "go.mod"))
			hidden := strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
			if name != "." && (hidden || base == "testdata" || base == "vendor" || statErr == nil) {
				return filepath.SkipDir
			}
			return nil
		}
		if path.Ext(base) != ".go" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
			return nil
		}
		sources = append(sources, parseSource(t, fset, filepath.ToSlash(name), nil))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// parseSource parses text, or the file of that name if text is nil.
func parseSource(t *testing.T, fset *token.FileSet, name string, text any) source {
	t.Helper()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{pkg: path.Dir(name), path: name, test: strings.HasSuffix(name, "_test.go"), file: file}
}

func checkImports(table map[string]row, src source) (faults []string) {
	allowed, ok := table[src.pkg]
	if !ok {
		return []string{fmt.Sprintf("%s: package %s has no line in the table: add one to dependencies in internal/check/structure/deps_test.go "+
			"that says what it may import, and describe in ARCHITECTURE.md what it owns", src.path, src.pkg)}
	}
	others := allowed.others
	if src.test {
		others = append(slices.Clone(others), strings.Fields(testDependencies)...)
	}
	for _, imported := range importsOf(src.file) {
		ours, isOurs := strings.CutPrefix(imported+"/", module+"/")
		ours = path.Clean(ours)
		first, _, _ := strings.Cut(imported, "/")
		switch {
		case isOurs && (src.test || ours == src.pkg || allows(allowed.ours, ours)):
		case isOurs:
			faults = append(faults, fmt.Sprintf("%s: %s may not import %s; the table allows: %s",
				src.path, src.pkg, ours, strings.Join(allowed.ours, " ")))
		case strings.Contains(first, ".") && !slices.ContainsFunc(others, func(prefix string) bool {
			return prefix == "*" || imported == prefix || strings.HasPrefix(imported, prefix+"/")
		}):
			faults = append(faults, fmt.Sprintf("%s: %s may not import %s; of other modules, the table allows: %s",
				src.path, src.pkg, imported, strings.Join(others, " ")))
		}
	}
	return faults
}

func allows(list []string, word string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, word)
}

func importsOf(file *ast.File) (paths []string) {
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, imported)
	}
	return paths
}

func checkStyle(fset *token.FileSet, src source) (faults []string) {
	name := strings.TrimSuffix(src.file.Name.Name, "_test")
	if slices.Contains(bannedNames, name) || slices.Contains(bannedNames, path.Base(src.pkg)) {
		faults = append(faults, fmt.Sprintf("%s: package %s: name what it owns", src.path, name))
	}
	if ast.IsGenerated(src.file) {
		return faults
	}
	if lines := fset.File(src.file.FileStart).LineCount(); lines > fileLinesMax {
		faults = append(faults, fmt.Sprintf("%s: %d lines, at most %d: split it", src.path, lines, fileLinesMax))
	}
	for _, decl := range src.file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || src.test {
			continue
		}
		start, end := fset.Position(fn.Pos()), fset.Position(fn.End())
		if lines := end.Line - start.Line + 1; lines > funcLinesMax {
			faults = append(faults, fmt.Sprintf("%s:%d: func %s has %d lines, at most %d: split it",
				src.path, start.Line, fn.Name.Name, lines, funcLinesMax))
		}
	}
	return faults
}
