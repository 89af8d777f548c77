package isotone_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file keeps the architecture: who may import whom, what the deterministic
// zone may not touch, and how large a file or a function may grow.

const module = "github.com/isotone/isotone"

// dependencies has one line for each package of the module:
//
//	package: packages of the module it may import ; others it may import
//
// A package is its directory, "." is the root. Another module is a prefix. The
// standard library is free, but see zone. "*" allows everything. A line may
// stand before its package exists.
const dependencies = `
.:
client:                   .
snowflake:                .
disruptor:

internal/mutant:
internal/oracle:          . internal/mutant
internal/replica:         . internal/oracle internal/mutant ; go.etcd.io/raft/v3 google.golang.org/protobuf
internal/storage:         ; go.etcd.io/raft/v3 go.etcd.io/bbolt google.golang.org/protobuf
internal/peer:            ; go.etcd.io/raft/v3 google.golang.org/protobuf
internal/loop:            disruptor ; golang.org/x/sys github.com/panjf2000/gnet/v2
internal/telemetry:       ; github.com/prometheus/client_golang go.opentelemetry.io/otel
internal/config:          ; github.com/alecthomas/kong
internal/node:            . disruptor internal/oracle internal/replica internal/storage internal/peer internal/loop internal/front internal/telemetry ; go.etcd.io/raft/v3 google.golang.org/protobuf golang.org/x/sys

internal/front:           .
internal/front/httpapi:   .
internal/front/http1:     . internal/loop internal/front internal/front/httpapi
internal/front/gate:      . internal/loop internal/front
internal/front/resp:      . internal/loop internal/front
internal/front/web:       . internal/front internal/front/httpapi ; github.com/quic-go/quic-go
internal/front/thriftrpc: . internal/loop internal/front ; github.com/apache/thrift

internal/live:            .
internal/dashboard:       .
internal/balance:         .
internal/proxy:           . client internal/front internal/balance

internal/lincheck:        .
internal/sim:             . internal/oracle internal/replica internal/lincheck internal/mutant ; go.etcd.io/raft/v3 google.golang.org/protobuf
internal/chaos:           . internal/lincheck ; golang.org/x/sys github.com/quic-go/quic-go
internal/bench:           . client internal/lincheck ; github.com/HdrHistogram/hdrhistogram-go github.com/quic-go/quic-go golang.org/x/sys
bench/static:

cmd/isotone:              * ; *
`

// testDependencies are the modules that every _test.go file may import as well;
// it may also import every package of the module.
const testDependencies = "go.uber.org/goleak pgregory.net/rapid github.com/anishathalye/porcupine github.com/rogpeppe/go-internal github.com/redis/go-redis/v9 golang.org/x/net"

// zone is the deterministic zone: the same inputs give the same effects, so the
// simulator replays what production ran. See checkZone.
var zone = []string{"internal/oracle", "internal/replica", "internal/lincheck", "internal/sim", "internal/balance"}

// zoneImports are the imports that no package of the zone may have; "net/"
// stands for all packages below net.
var zoneImports = []string{"sync", "sync/atomic", "os", "os/", "net", "net/", "math/rand", "math/rand/v2", "crypto/rand", "syscall"}

// zoneFuncs are the functions by which wall time would come in.
var zoneFuncs = map[string]string{
	"time":    "Now Since Until Sleep After AfterFunc NewTimer NewTicker Tick",
	"context": "WithTimeout WithTimeoutCause WithDeadline WithDeadlineCause AfterFunc",
}

// zoneExceptions lift one import for one package (in files that match), and name
// all that may be used of it.
var zoneExceptions = []struct{ pkg, file, imported, names string }{
	// A generator that is seeded and passed in is an input like any other.
	{"internal/sim", "*", "math/rand/v2", "New NewPCG NewChaCha8 Rand PCG ChaCha8 Source"},
	// raft draws election jitter from this variable; the simulator replaces it.
	{"internal/sim", "*", "crypto/rand", "Reader"},
	// The online checker counts for readers on other threads.
	{"internal/lincheck", "online*.go", "sync/atomic", "*"},
	{"internal/lincheck", "online*.go", "sync", "Mutex"},
}

const (
	// fileLinesMax and funcLinesMax are where a room is no longer small; the aim
	// is well below.
	fileLinesMax = 600
	funcLinesMax = 100
)

// bannedNames say nothing about what a package owns.
var bannedNames = strings.Fields("util utils common types helper helpers base misc shared")

func TestDeps_ModuleKeepsTableAndStyle(t *testing.T) {
	fset := token.NewFileSet()
	table := parseTable(t, dependencies)
	for _, src := range parseModule(t, fset) {
		report(t, checkImports(table, src))
		report(t, checkStyle(fset, src))
	}
}

func TestDeps_ZoneIsDeterministic(t *testing.T) {
	fset := token.NewFileSet()
	packages := map[string][]source{}
	for _, src := range parseModule(t, fset) {
		if slices.Contains(zone, src.pkg) && !src.test {
			packages[src.pkg] = append(packages[src.pkg], src)
		}
	}
	found := slices.Sorted(maps.Keys(packages))
	imp := newImporter(t, fset, found)
	for _, pkg := range found {
		report(t, checkZone(fset, imp, packages[pkg]))
	}
}

// TestDeps_TableIsSound keeps the table itself: it has no cycle, and nothing in
// the zone depends on a package outside it.
func TestDeps_TableIsSound(t *testing.T) {
	table := parseTable(t, dependencies)
	var visit func(pkg string, above []string)
	visit = func(pkg string, above []string) {
		if slices.Contains(above, pkg) {
			t.Fatalf("a cycle: %s", strings.Join(append(above, pkg), " → "))
		}
		for _, ours := range table[pkg].ours {
			if _, ok := table[ours]; !ok && ours != "*" {
				t.Errorf("%s: %s has no line", pkg, ours)
			}
			// The switch for deliberate bugs is constant, but in a test's own build.
			if slices.Contains(zone, pkg) && !slices.Contains(zone, ours) && ours != "." && ours != "internal/mutant" {
				t.Errorf("%s is in the deterministic zone, %s is not", pkg, ours)
			}
			visit(ours, append(above, pkg))
		}
	}
	for pkg := range table {
		visit(pkg, nil)
	}
	for _, pkg := range zone {
		if _, ok := table[pkg]; !ok {
			t.Errorf("%s is in the deterministic zone and has no line", pkg)
		}
	}
}

func report(t *testing.T, faults []string) {
	t.Helper()
	for _, fault := range faults {
		t.Error(fault)
	}
}

// source is one file of the module.
type source struct {
	pkg  string // directory inside the module, "." for the root
	path string // as it is printed in a fault
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
// constraints: what does not compile here is imported elsewhere.
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
		return []string{fmt.Sprintf("%s: package %s has no line in the table: add one to dependencies in deps_test.go "+
			"that says what it may import, and say in the design what it owns", src.path, src.pkg)}
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
			faults = append(faults, fmt.Sprintf("%s: %s may not import %s; the table allows it: %s",
				src.path, src.pkg, ours, strings.Join(allowed.ours, " ")))
		case strings.Contains(first, ".") && !slices.ContainsFunc(others, func(prefix string) bool {
			return prefix == "*" || imported == prefix || strings.HasPrefix(imported, prefix+"/")
		}):
			faults = append(faults, fmt.Sprintf("%s: %s may not import %s; the table allows it of other modules: %s",
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

// newImporter returns an importer that reads what the go command compiled for
// the given packages and for all that the snippets below import. That is exact
// and quick: nothing is type-checked from source but the zone itself.
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
			return nil, fmt.Errorf("%s is not compiled", imported)
		}
		return os.Open(exports[imported])
	})
}

// checkZone returns what is not deterministic in the files of one package: its
// imports, wall time, goroutines and channels, and iteration in map order. A
// loop whose result does not depend on the order says so, on its line or the one
// above:
//
//	// order-free: it only sums
//
// It cannot see through an iterator that itself hides a map, nor into another
// module.
func checkZone(fset *token.FileSet, imp types.Importer, sources []source) (faults []string) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	var files []*ast.File
	for _, src := range sources {
		files = append(files, src.file)
	}
	conf := types.Config{Importer: imp, Error: func(err error) {
		faults = append(faults, fmt.Sprintf("%v (no check of map order without types)", err))
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
	sorted    map[ast.Expr]bool // iterators that are sorted at once
	faults    []string
}

func (c *zoneChecker) fault(pos token.Pos, format string, args ...any) {
	p := c.fset.Position(pos)
	c.faults = append(c.faults, fmt.Sprintf("%s:%d: the deterministic zone has no %s", p.Filename, p.Line, fmt.Sprintf(format, args...)))
}

// except returns the names that this file may use of an import that is forbidden
// to the zone.
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
		c.fault(n.Pos(), "range over a map in its random order; sort the keys, or say why it does not matter: // order-free: …")
	}
}

func (c *zoneChecker) visitSelector(n *ast.SelectorExpr) {
	pkg, name := c.qualified(n)
	if slices.Contains(strings.Fields(zoneFuncs[pkg]), name) {
		c.fault(n.Pos(), "%s.%s: time is an argument", pkg, name)
	}
	if names := c.except(pkg); len(names) > 0 && !allows(names, name) {
		c.fault(n.Pos(), "%s.%s; allowed of it: %s", pkg, name, strings.Join(names, " "))
	}
	if pkg == "maps" && slices.Contains([]string{"All", "Keys", "Values"}, name) && !c.sorted[n] && !c.isOrderFree(n.Pos()) {
		c.fault(n.Pos(), "maps.%s outside of slices.Sorted; or say why the order does not matter: // order-free: …", name)
	}
}

// qualified returns import path and name of an expression pkg.Name, whatever the
// file calls the package.
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

// The tests of the checks: each line is a file, and a part of the fault that it
// must give, or "" if it must pass.

func TestDeps_ImportsAreCaught(t *testing.T) {
	table := parseTable(t, dependencies)
	for _, tt := range []struct{ file, imports, want string }{
		{"a.go", `"net/http"; "` + module + `/client"`, ". may not import client"},
		{"client/a.go", `"net/http"; "` + module + `"`, ""},
		{"client/a.go", `"` + module + `/internal/oracle"`, "client may not import internal/oracle"},
		{"client/a_test.go", `"` + module + `/internal/oracle"; "` + module + `/client"; "go.uber.org/goleak"`, ""},
		{"client/a.go", `"go.uber.org/goleak"`, "client may not import go.uber.org/goleak"},
		{"client/a_test.go", `"github.com/alecthomas/kong"`, "may not import github.com/alecthomas/kong"},
		{"internal/replica/a.go", `"go.etcd.io/raft/v3/raftpb"; "` + module + `/internal/oracle"`, ""},
		{"internal/replica/a.go", `"go.etcd.io/raft/v3x"`, "may not import go.etcd.io/raft/v3x"},
		{"internal/front/web/a.go", `"` + module + `/internal/front/resp"`, "may not import internal/front/resp"},
		{"cmd/isotone/a.go", `"` + module + `/internal/node"; "example.org/x"`, ""},
		{"internal/new/a.go", `"fmt"`, "package internal/new has no line in the table"},
	} {
		src := parseSource(t, token.NewFileSet(), tt.file, "package p; import ("+tt.imports+")")
		wantFault(t, tt.file+": "+tt.imports, checkImports(table, src), tt.want)
	}
}

func TestDeps_StyleIsCaught(t *testing.T) {
	long := func(n int) string { return "func f() {" + strings.Repeat("\n", n-1) + "}" }
	for _, tt := range []struct{ file, text, want string }{
		{"internal/a/a.go", "package a; " + long(funcLinesMax), ""},
		{"internal/a/a.go", "package a; " + long(funcLinesMax+1), "func f has 101 lines"},
		{"internal/a/a_test.go", "package a; " + long(funcLinesMax+1), ""},
		{"internal/a/a.go", "package a" + strings.Repeat("\n", fileLinesMax), ""},
		{"internal/a/a_test.go", "package a" + strings.Repeat("\n", fileLinesMax+1), "601 lines"},
		{"internal/a/a.go", "// Code generated by x. DO NOT EDIT.\npackage a" + strings.Repeat("\n", fileLinesMax+1), ""},
		{"internal/util/a.go", "package a", "name what it owns"},
		{"internal/a/a_test.go", "package types_test", "name what it owns"},
	} {
		fset := token.NewFileSet()
		wantFault(t, tt.file, checkStyle(fset, parseSource(t, fset, tt.file, tt.text)), tt.want)
	}
}

func TestDeps_ChanceIsCaughtInTheZone(t *testing.T) {
	fset := token.NewFileSet()
	imp := newImporter(t, fset, nil)
	const oracle, sim, online = "internal/oracle/a.go", "internal/sim/a.go", "internal/lincheck/online_count.go"
	for _, tt := range []struct{ file, text, want string }{
		{oracle, `import "sync/atomic"; var _ atomic.Int64`, "import of sync/atomic"},
		{oracle, `import h "net/http"; var _ h.Header`, "import of net/http"},
		{oracle, `import "math/rand/v2"; var _ rand.Rand`, "import of math/rand/v2"},
		{oracle, `import . "time"; var _ = Now`, "dot import"},
		{oracle, `import "time"; var _ = time.Second; func f(now time.Time) time.Time { return now.Add(1) }`, ""},
		{oracle, `import clock "time"; var now = clock.Now`, "time.Now"},
		{oracle, `import "time"; type c struct{}; func (c) Now() {}; func f(time c) { time.Now() }; var _ time.Time`, ""},
		{oracle, `import "context"; func f(c context.Context) { context.WithTimeout(c, 1) }`, "context.WithTimeout"},
		{oracle, `func f() { go f() }`, "go statement"},
		{oracle, `func f() { select {} }`, "select statement"},
		{oracle, `var c chan int`, "channel type"},
		{oracle, `import "context"; func f(c context.Context) { <-c.Done() }`, "channel receive"},
		{oracle, `import "context"; func f(c context.Context) { for range c.Done() {} }`, "range over a channel"},
		{oracle, `type m map[int]int; func f(x m) { for range x {} }`, "range over a map"},
		{oracle, `func f[M ~map[int]int](x M) { for range x {} }`, "range over a map"},
		{oracle, `func f[S ~[]int](x S) { for range x {} }`, ""},
		{oracle, "func f(x map[int]int) {\n// order-free: it only counts\nfor range x {} }", ""},
		{oracle, "func f(x map[int]int) {\nfor range x { // order-free: it only counts\n} }", ""},
		{oracle, "func f(x map[int]int) {\n// order-free:\nfor range x {} }", "range over a map"},
		{oracle, `import "maps"; func f(x map[int]int) { for range maps.Keys(x) {} }`, "maps.Keys"},
		{oracle, `import ("maps"; "slices"); func f(x map[int]int) { for range slices.Sorted(maps.Keys(x)) {} }`, ""},
		{oracle, "\n//go:build linux\n", "build constraint"},
		{oracle, `var x int = "y"`, "without types"},
		{sim, `import "math/rand/v2"; func f(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }`, ""},
		{sim, `import "math/rand/v2"; var x = rand.Uint64()`, "rand/v2.Uint64"},
		{sim, `import "crypto/rand"; func f() { rand.Reader = nil }`, ""},
		{sim, `import "crypto/rand"; var x = rand.Text()`, "crypto/rand.Text"},
		{online, `import "sync/atomic"; var _ atomic.Int64`, ""},
		{online, `import "os"; var _ os.File`, "import of os"},
		{"internal/lincheck/exact.go", `import "sync/atomic"; var _ atomic.Int64`, "import of sync/atomic"},
	} {
		src := parseSource(t, fset, tt.file, "package p; "+tt.text)
		wantFault(t, tt.file+": "+tt.text, checkZone(fset, imp, []source{src}), tt.want)
	}
}

// wantFault fails unless a fault contains want, or there is none if want is "".
func wantFault(t *testing.T, what string, faults []string, want string) {
	t.Helper()
	if all := strings.Join(faults, "\n"); want == "" && all != "" || !strings.Contains(all, want) {
		t.Errorf("%s\n got %q\nwant %q", what, all, want)
	}
}
