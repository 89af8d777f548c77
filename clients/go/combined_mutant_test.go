//go:build mutants

package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bugVariable of the environment has the name of the mutant that a program with all of them is.
const bugVariable = "ISOTONE_CLIENT_BUG"

// combined is Go code with the mutants that change one function each: beside the function stands another one with the bug, and the function begins with
// a call of that if bugVariable says so. So one build serves all.
type combined struct {
	files map[string]string // the new text of each, by path
	alone map[string]bool   // mutants, by name, that are not in it: they change something else
}

// programs has go build or go test -c, as args say, make a program of all mutants of a list, and returns the command that runs one.
// By itself the program, right, has no bug.
func programs(t *testing.T, root string, list []mutant, args ...string) (right string, command func(*testing.T, mutant) []string) {
	t.Helper()
	all := combine(t, root, list)
	right = build(t, root, all.files, args...)
	return right, func(t *testing.T, m mutant) []string {
		if all.alone[m.name] {
			return []string{build(t, root, map[string]string{filepath.Join(root, filepath.FromSlash(m.file)): m.replaced(t, root)}, args...)}
		}
		return []string{"env", bugVariable + "=" + m.name, right}
	}
}

func combine(t *testing.T, root string, list []mutant) combined {
	t.Helper()
	all := combined{files: map[string]string{}, alone: map[string]bool{}}
	byFile := map[string][]mutant{}
	for _, m := range list {
		byFile[m.file] = append(byFile[m.file], m)
	}
	for file, bugs := range byFile {
		path := filepath.Join(root, filepath.FromSlash(file))
		right := read(t, path)
		parsed := parse(t, right)
		calls := map[int]string{} // by offset
		var copies strings.Builder
		for i, m := range bugs {
			wrong := m.replaced(t, root)
			f, g := changed(right, wrong, parsed, parse(t, wrong))
			call, ok := callOf(f, fmt.Sprintf("%s_bug%d", nameOf(f), i))
			if !ok {
				all.alone[m.name] = true
				continue
			}
			calls[offset(f.Body.Lbrace)+1] += fmt.Sprintf(" if deliberateBug == %q { %s }; ", m.name, call)
			fmt.Fprintf(&copies, "\n%s_bug%d%s\n", wrong[offset(g.Pos()):offset(g.Name.End())], i, wrong[offset(g.Name.End()):offset(g.End())])
		}
		text := right
		for _, at := range slices.Backward(slices.Sorted(maps.Keys(calls))) {
			text = text[:at] + calls[at] + text[at:]
		}
		all.files[path] = text + copies.String()
		all.files[filepath.Join(filepath.Dir(path), "deliberate_bug.go")] = fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar deliberateBug = os.Getenv(%q)\n", parsed.Name, bugVariable)
	}
	return all
}

// changed returns the only function that differs, in both texts, or nil if something else does.
func changed(right, wrong string, r, w *ast.File) (f, g *ast.FuncDecl) {
	if len(r.Decls) != len(w.Decls) {
		return nil, nil
	}
	text := func(s string, from, to token.Pos) string { return s[offset(from):offset(to)] }
	for i, d := range r.Decls {
		a, b := d, w.Decls[i]
		if text(right, a.Pos(), a.End()) == text(wrong, b.Pos(), b.End()) {
			continue
		}
		fa, isFunc := a.(*ast.FuncDecl)
		fb, isAlso := b.(*ast.FuncDecl)
		if f != nil || !isFunc || !isAlso || text(right, fa.Pos(), fa.Body.Lbrace) != text(wrong, fb.Pos(), fb.Body.Lbrace) {
			return nil, nil
		}
		f, g = fa, fb
	}
	return f, g
}

// callOf returns a statement that calls a function like f, but for its name, with the arguments that f has been called with.
func callOf(f *ast.FuncDecl, name string) (string, bool) {
	if f == nil {
		return "", false
	}
	var args []string
	for _, p := range f.Type.Params.List {
		for _, n := range p.Names {
			args = append(args, n.Name)
		}
		if _, ok := p.Type.(*ast.Ellipsis); ok {
			args[len(args)-1] += "..."
		}
		if len(p.Names) == 0 {
			args = append(args, "_")
		}
	}
	if f.Recv != nil {
		if len(f.Recv.List[0].Names) == 0 {
			return "", false
		}
		name = f.Recv.List[0].Names[0].Name + "." + name
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if f.Type.Results != nil {
		return "return " + call, !slices.Contains(args, "_")
	}
	return call + "; return", !slices.Contains(args, "_")
}

func nameOf(f *ast.FuncDecl) string {
	if f == nil {
		return ""
	}
	return f.Name.Name
}

// offset of a position in a file that was parsed by itself.
func offset(p token.Pos) int { return int(p) - 1 }

func parse(t *testing.T, text string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// build runs go build or go test -c, as args say, in root, with the files changed, and returns what it made.
func build(t *testing.T, root string, files map[string]string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for path, text := range files {
		replace[path] = filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		write(t, replace[path], text)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), string(overlay))
	binary := filepath.Join(dir, "binary.exe")
	build := exec.CommandContext(t.Context(), "go", slices.Concat(args[:len(args)-1], []string{"-overlay", filepath.Join(dir, "overlay.json"), "-o", binary}, args[len(args)-1:])...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}
