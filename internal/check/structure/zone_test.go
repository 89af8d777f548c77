package structure_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// newImporter returns an importer of the export data that the go command wrote for
// the imports of the given packages and of the snippets in the tests. Only the zone
// itself is type-checked from source, which keeps this quick.
func newImporter(t *testing.T, fset *token.FileSet, packages []string) types.Importer {
	t.Helper()
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command: ", err)
	}
	args := []string{"list", "-e", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}
	args = append(args, strings.Fields("context crypto/rand maps math/rand/v2 net/http os slices sync/atomic time")...)
	for _, pkg := range packages {
		args = append(args, "./"+pkg)
	}
	var stderr bytes.Buffer
	command := exec.Command(tool, args...)
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		imported, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[imported] = file
	}
	return importer.ForCompiler(fset, "gc", func(imported string) (io.ReadCloser, error) {
		if exports[imported] == "" {
			return nil, fmt.Errorf("%s has no export data", imported)
		}
		return os.Open(exports[imported])
	})
}

// checkZone returns what is not deterministic in the files of one package: its
// imports, wall time, goroutines and channels, and iteration in map order. If the
// result of a loop does not depend on the order, a comment on its line or the one
// above says why:
//
//	// order-free: it only sums
//
// It does not detect an iterator that ranges over a map, nor what other modules do.
func checkZone(fset *token.FileSet, imp types.Importer, sources []source) (faults []string) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	var files []*ast.File
	for _, src := range sources {
		files = append(files, src.file)
	}
	conf := types.Config{Importer: imp, Error: func(err error) {
		faults = append(faults, fmt.Sprintf("%v (map order cannot be checked without types)", err))
	}}
	_, _ = conf.Check(sources[0].pkg, fset, files, info)
	for _, src := range sources {
		c := &zoneChecker{fset: fset, info: info, src: src, sorted: map[ast.Expr]bool{}}
		c.checkImports()
		c.checkComments()
		ast.Inspect(src.file, c.visit)
		faults = append(faults, c.faults...)
	}
	return faults
}

type zoneChecker struct {
	fset      *token.FileSet
	info      *types.Info
	src       source
	orderFree []int             // lines with an order-free comment
	sorted    map[ast.Expr]bool // iterators that are arguments of slices.Sorted
	faults    []string
}

func (c *zoneChecker) fault(pos token.Pos, format string, args ...any) {
	p := c.fset.Position(pos)
	c.faults = append(c.faults, fmt.Sprintf("%s:%d: the deterministic zone has no %s", p.Filename, p.Line, fmt.Sprintf(format, args...)))
}

// except returns the names that this file may use from an import that the zone
// forbids.
func (c *zoneChecker) except(imported string) (names []string) {
	for _, e := range zoneExceptions {
		match, _ := path.Match(e.file, path.Base(c.src.path))
		if match && e.pkg == c.src.pkg && e.imported == imported {
			names = append(names, strings.Fields(e.names)...)
		}
	}
	return names
}

func (c *zoneChecker) checkImports() {
	for i, imported := range importsOf(c.src.file) {
		spec := c.src.file.Imports[i]
		forbidden := slices.ContainsFunc(zoneImports, func(z string) bool {
			return imported == z || strings.HasSuffix(z, "/") && strings.HasPrefix(imported, z)
		})
		if forbidden && len(c.except(imported)) == 0 {
			c.fault(spec.Pos(), "import of %s", imported)
		}
		if spec.Name != nil && spec.Name.Name == "." {
			c.fault(spec.Pos(), "dot import, which would hide %s", imported)
		}
	}
}

var orderFree = regexp.MustCompile(`^// order-free: \S`)

func (c *zoneChecker) checkComments() {
	for _, group := range c.src.file.Comments {
		for _, comment := range group.List {
			if orderFree.MatchString(comment.Text) {
				c.orderFree = append(c.orderFree, c.fset.Position(comment.Pos()).Line)
			}
			if strings.HasPrefix(comment.Text, "//go:build ") {
				c.fault(comment.Pos(), "build constraint: the simulator runs what production runs")
			}
		}
	}
}

func (c *zoneChecker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.fault(n.Pos(), "go statement")
	case *ast.SelectStmt:
		c.fault(n.Pos(), "select statement")
	case *ast.ChanType:
		c.fault(n.Pos(), "channel type")
	case *ast.SendStmt:
		c.fault(n.Pos(), "channel send")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			c.fault(n.Pos(), "channel receive")
		}
	case *ast.RangeStmt:
		c.visitRange(n)
	case *ast.CallExpr:
		if pkg, name := c.qualified(n.Fun); pkg == "slices" && strings.HasPrefix(name, "Sorted") && len(n.Args) > 0 {
			if inner, ok := n.Args[0].(*ast.CallExpr); ok {
				c.sorted[inner.Fun] = true
			}
		}
	case *ast.SelectorExpr:
		c.visitSelector(n)
	}
	return true
}

func (c *zoneChecker) visitRange(n *ast.RangeStmt) {
	t := c.info.TypeOf(n.X)
	if t == nil {
		return
	}
	if _, ok := t.Underlying().(*types.Chan); ok {
		c.fault(n.Pos(), "range over a channel")
	}
	if isMap(t) && !c.isOrderFree(n.Pos()) {
		c.fault(n.Pos(), "range over a map in its random order; sort the keys, or say why the order does not matter: // order-free: …")
	}
}

func (c *zoneChecker) visitSelector(n *ast.SelectorExpr) {
	pkg, name := c.qualified(n)
	if slices.Contains(strings.Fields(zoneFuncs[pkg]), name) {
		c.fault(n.Pos(), "%s.%s: time is an argument", pkg, name)
	}
	if names := c.except(pkg); len(names) > 0 && !allows(names, name) {
		c.fault(n.Pos(), "%s.%s; allowed of this package: %s", pkg, name, strings.Join(names, " "))
	}
	if pkg == "maps" && slices.Contains([]string{"All", "Keys", "Values"}, name) && !c.sorted[n] && !c.isOrderFree(n.Pos()) {
		c.fault(n.Pos(), "maps.%s outside of slices.Sorted; or say why the order does not matter: // order-free: …", name)
	}
}

// qualified returns the import path and the name of an expression pkg.Name, under
// whatever name the file imports the package.
func (c *zoneChecker) qualified(e ast.Expr) (pkg, name string) {
	if selector, ok := e.(*ast.SelectorExpr); ok {
		if ident, ok := selector.X.(*ast.Ident); ok {
			if used, ok := c.info.Uses[ident].(*types.PkgName); ok {
				return used.Imported().Path(), selector.Sel.Name
			}
		}
	}
	return "", ""
}

func (c *zoneChecker) isOrderFree(pos token.Pos) bool {
	line := c.fset.Position(pos).Line
	return slices.Contains(c.orderFree, line) || slices.Contains(c.orderFree, line-1)
}

// isMap reports whether t is a map, or a type parameter that can be one.
func isMap(t types.Type) bool {
	switch t := t.Underlying().(type) {
	case *types.Map:
		return true
	case *types.Interface:
		return slices.ContainsFunc(slices.Collect(t.EmbeddedTypes()), isMap)
	case *types.Union:
		return slices.ContainsFunc(slices.Collect(t.Terms()), func(term *types.Term) bool { return isMap(term.Type()) })
	}
	return false
}
