package thriftrpc_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone"
)

// python returns a Python that has the Thrift library, or skips the test. The one of the
// system may have it where another comes first in PATH.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import thrift").Run() == nil {
			return name
		}
	}
	t.Skip("needs Python with the Thrift library: install the package python3-thrift")
	return ""
}

// TestPython runs clients that others wrote: code that the Thrift compiler makes from our
// interface, on the library for Python.
func TestPython(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	compile := compiler(t)
	for name, file := range interfaces(t) {
		t.Run(name, func(t *testing.T) { testPython(t, compile, interpreter, file) })
	}
}

func testPython(t *testing.T, compiler, interpreter, source string) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()

	dir := t.TempDir()
	if out, err := exec.CommandContext(ctx, compiler, "-strict", "--gen", "py", "-out", dir, source).CombinedOutput(); err != nil {
		t.Fatalf("thrift: %v\n%s", err, out)
	}
	_, certificate := certify(t)
	file := filepath.Join(dir, "cert.pem")
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}

	well, clock, full := start(t), start(t), start(t)
	clock.ids.fail(isotone.ErrClock)
	full.ids.fail(isotone.ErrOverloaded)
	args := []string{"-B", filepath.Join("testdata", "client.py"), dir, file}
	for _, s := range []*site{well, clock, full} {
		_, port, _ := net.SplitHostPort(s.addr)
		args = append(args, port)
	}
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, interpreter, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v after\n%s%s", err, out, stderr.String())
	}

	var want []string
	for _, protocol := range []string{"binary", "binary-unversioned", "binary-accelerated", "compact", "compact-accelerated", "json"} {
		for _, transport := range []string{"buffered", "framed"} {
			want = append(want, protocol+" "+transport+" plain\n", protocol+" "+transport+" tls\n")
		}
	}
	if string(out) != strings.Join(want, "") {
		t.Errorf("what works:\n%s", out)
	}
	if n := well.seen.of("get_id", "python-test", "ok"); n != 20*len(want) {
		t.Errorf("the server counted %d ids", n)
	}
}
