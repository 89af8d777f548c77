package thriftrpc_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/isotone/isotone"
)

// compiler returns the Thrift compiler, or skips the test.
func compiler(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("thrift")
	if err != nil {
		t.Skip("needs thrift: install the package thrift-compiler")
	}
	return path
}

// interfaces are the files that clients are generated from: ours, and the same without the
// exceptions, as many programs have it. Code generated from the second skips exceptions that
// are fields of a result.
func interfaces(t *testing.T) map[string]string {
	t.Helper()
	ours, err := os.ReadFile("snowflake.thrift")
	if err != nil {
		t.Fatal(err)
	}
	bare := regexp.MustCompile(` throws \(.*\)`).ReplaceAll(ours, nil)
	if bytes.Equal(bare, ours) {
		t.Fatal("the interface declares no exceptions")
	}
	files := map[string]string{}
	for name, text := range map[string][]byte{"with exceptions": ours, "without": bare} {
		files[name] = filepath.Join(t.TempDir(), "snowflake.thrift")
		if err := os.WriteFile(files[name], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestGo runs testdata/client with generated code, in a module of its own.
func TestGo(t *testing.T) {
	t.Parallel()
	compile := compiler(t)
	for name, file := range interfaces(t) {
		t.Run(name, func(t *testing.T) {
			well, clock := start(t), start(t)
			clock.ids.fail(isotone.ErrClock)
			out := run(t, "", buildClient(t, compile, file), well.addr, clock.addr)
			if n := strings.Count(out, "framed="); n != 6 {
				t.Errorf("%d of 6 ways work:\n%s", n, out)
			}
		})
	}
}

// buildClient builds testdata/client with code generated from the interface in file.
func buildClient(t *testing.T, compiler, file string) string {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join("..", "..", "..")
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join("testdata", "client", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	version := run(t, root, "go", "list", "-m", "github.com/apache/thrift")
	for name, text := range map[string]string{
		"go.sum": string(sums), "main.go": string(program), "go.mod": "module client\n\ngo 1.26\n\nrequire " + version,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "", compiler, "-strict", "--gen", "go:package_prefix=client/gen-go/", "-o", dir, file)
	run(t, dir, "go", "build", "-o", "client", ".")
	return filepath.Join(dir, "client")
}

// run runs a command in dir, which must succeed, and returns what it prints.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, out, stderr.String())
	}
	return string(out)
}
