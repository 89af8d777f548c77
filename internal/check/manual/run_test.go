//go:build linux

package manual_test

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/ports"
)

const (
	// blockTimeout bounds one block. Most take less than two seconds on an idle machine, but one builds
	// the program, which takes minutes on a slow one where nothing was built before.
	blockTimeout = 5 * time.Minute
	// readyTimeout bounds the start of the nodes that blocks share.
	readyTimeout = time.Minute
	// blockPorts is how many ports a block has: three nodes for clients, one for peers, a proxy.
	blockPorts = 5
	proxyPort  = 4
	// intervalMS is long, so that intervals stay valid on a busy machine.
	intervalMS = "2000"
)

// prelude comes before each block: it has servers run beside the rest of the block.
//
//go:embed testdata/prelude.sh
var prelude string

// tools are the programs that blocks use and that may be missing.
var tools = regexp.MustCompile(`(?m)(?:^|[;|(] *)(curl|redis-cli|redis-benchmark|openssl|xxd|python3|jq)\b`)

// addresses map what stands in the text to a node, 0 to 2.
var addresses = []struct {
	from *regexp.Regexp
	node int
}{
	{regexp.MustCompile(`(?:127\.0\.0\.1|localhost|10\.0\.0\.1|node1|host1):808[01]\b`), 0},
	{regexp.MustCompile(`(?:127\.0\.0\.1|localhost):8082\b|(?:10\.0\.0\.2|node2|host2):8080\b`), 1},
	{regexp.MustCompile(`(?:127\.0\.0\.1|localhost):8083\b|(?:10\.0\.0\.3|node3|host3):8080\b`), 2},
}

var (
	redisPort   = regexp.MustCompile(`-p 808([0-3])\b`)
	proxyAddr   = regexp.MustCompile(`(?:127\.0\.0\.1|localhost)?:8090\b`)
	otherHost   = regexp.MustCompile(`\b(?:10\.\d+\.\d+\.\d+|(?:node|host)\d|[a-z0-9-]+\.(?:com|org|net|io|example|local))\b`)
	startsNodes = regexp.MustCompile(`(?m)isotone (?:dev|serve)\b`)
)

// place is where a block finds its servers.
type place struct{ nodes, own int } // first ports: of the nodes, and of those for the block itself

// shell returns the text of a block as it is run, or why it must not be run as it is.
func (b *block) shell(p place) (string, error) {
	text := strings.ReplaceAll(b.text, "go run ./cmd/isotone", "isotone")
	text = strings.ReplaceAll(text, "-o isotone ", `-o "$GOBIN/isotone" `)
	for _, a := range addresses {
		text = a.from.ReplaceAllString(text, fmt.Sprintf("127.0.0.1:%d", p.nodes+a.node))
	}
	text = redisPort.ReplaceAllStringFunc(text, func(option string) string {
		return fmt.Sprintf("-p %d", p.nodes+max(int(option[len(option)-1]-'0')-1, 0))
	})
	text = proxyAddr.ReplaceAllString(text, fmt.Sprintf("127.0.0.1:%d", p.own+proxyPort))
	if host := otherHost.FindString(withoutComments(text)); host != "" && b.run == "" {
		return "", fmt.Errorf("%s is another machine: mark the block with <!-- not run: REASON -->, or <!-- run: REASON --> if nothing is sent there", host)
	}
	return strings.Join(append(slices.Clone(b.before), text), "\n"), nil
}

// withoutComments leaves out what follows a # at the beginning of a word.
func withoutComments(text string) string {
	return regexp.MustCompile(`(?m)(^|\s)#.*$`).ReplaceAllString(text, "")
}

// environment is what blocks share: the program and three nodes.
type environment struct {
	bin   string
	ports int // the first of the nodes
}

// TestBlocks_DoWhatTheySay runs the shell blocks of the documentation.
func TestBlocks_DoWhatTheySay(t *testing.T) {
	all := readManual(t)
	for _, file := range []string{"README.md", "docs/start.md", "docs/http.md"} {
		if !slices.ContainsFunc(all[file], func(b *block) bool { return b.notRun == "" }) {
			t.Errorf("%s has no block that is run", file)
		}
	}
	if testing.Short() {
		t.Skip("starts processes; left out by -short")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	env := start(t)
	for _, file := range slices.Sorted(maps.Keys(all)) {
		if elsewhere[file] != "" {
			continue
		}
		dir := t.TempDir()
		for _, b := range all[file] {
			if b.notRun != "" || b.marked {
				continue
			}
			t.Run(fmt.Sprintf("%s:%d", file, b.line), func(t *testing.T) { env.runBlock(t, b, dir) })
		}
	}
}

// start builds the program and starts the nodes.
func start(t *testing.T) *environment {
	t.Helper()
	bin := t.TempDir()
	if _, err := chaos.Build(bin); err != nil {
		t.Fatal(err)
	}
	ports, err := ports.Free(blockPorts)
	if err != nil {
		t.Fatal(err)
	}
	env := &environment{bin: bin, ports: ports}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "isotone"), "dev", "--port", fmt.Sprint(ports), "--interval-ms", intervalMS)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(readyTimeout); ; time.Sleep(20 * time.Millisecond) {
		if a, err := chaos.Get(fmt.Sprintf("127.0.0.1:%d", ports), "/timestamp", time.Second); err == nil && (a.Status == http.StatusOK || a.Status == http.StatusConflict) {
			return env
		}
		if time.Now().After(deadline) {
			t.Fatal("the nodes are not ready")
		}
	}
}

// runBlock runs one block in a directory and checks what it prints.
func (e *environment) runBlock(t *testing.T, b *block, dir string) {
	for _, tool := range tools.FindAllStringSubmatch(b.text, -1) {
		if _, err := exec.LookPath(tool[1]); err != nil {
			t.Skip(err)
		}
	}
	own, err := ports.Free(blockPorts)
	if err != nil {
		t.Fatal(err)
	}
	p := place{nodes: e.ports, own: own}
	if startsNodes.MatchString(strings.ReplaceAll(b.text, "go run ./cmd/isotone", "isotone")) {
		p.nodes = own
	}
	text, err := b.shell(p)
	if err == nil {
		_, err = e.firstLeads()
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.bash(text, own, b.directory(dir))
	if moved, moveErr := e.firstLeads(); err != nil && moved && moveErr == nil {
		t.Logf("once more, as another node had become the leader meanwhile: %v\n%s", err, out)
		out, err = e.bash(text, own, b.directory(dir))
	}
	if err != nil {
		t.Fatalf("%v\n%s\nof:\n%s", err, out, text)
	}
	t.Log(out)
	rest := out
	for _, want := range b.prints {
		want = strings.TrimSpace(want)
		at := strings.Index(rest, want)
		if at < 0 {
			t.Fatalf("%q is missing in\n%s\nof:\n%s", want, out, text)
		}
		rest = rest[at+len(want):]
	}
}

// firstLeads has the first of the shared nodes lead, in case a busy machine has made another one the leader,
// and reports whether that was so.
func (e *environment) firstLeads() (moved bool, err error) {
	addr := fmt.Sprintf("127.0.0.1:%d", e.ports)
	if a, err := chaos.Get(addr, "/timestamp", time.Second); err == nil && a.Status == http.StatusOK {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), blockTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(e.bin, "isotone"), "leader", "transfer", "1", "--endpoint", addr).CombinedOutput()
	if err != nil {
		return true, fmt.Errorf("leader transfer: %w\n%s", err, out)
	}
	return true, nil
}

// directory is where a block is run.
func (b *block) directory(dir string) string {
	if b.run == "in the repository" {
		return root
	}
	return dir
}

// bash runs shell commands, and returns what they print. When it returns, all processes of the
// commands have ended.
func (e *environment) bash(text string, own int, dir string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), blockTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "--norc", "-c", prelude+text) // without standard input
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+e.bin+":"+os.Getenv("PATH"), "GOBIN="+e.bin+"/installed", fmt.Sprint("OWN=", own))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if killErr := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
		err = errors.Join(err, killErr)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("not done after %v", blockTimeout)
	}
	return out.String(), err
}

// TestRunBlock_NoticesWhatIsWrong tests the test.
func TestRunBlock_NoticesWhatIsWrong(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	p := place{nodes: 11000, own: 12000}
	for _, c := range []struct{ text, want string }{
		{"curl localhost:8080/a '127.0.0.1:8082/b'", "curl 127.0.0.1:11000/a '127.0.0.1:11001/b'"},
		{"isotone status http://node1:8080 host3:8080", "isotone status http://127.0.0.1:11000 127.0.0.1:11002"},
		{"redis-cli -p 8080 TS; redis-cli -p 8083 TS", "redis-cli -p 11000 TS; redis-cli -p 11002 TS"},
		{"go run ./cmd/isotone proxy --listen :8090", "isotone proxy --listen 127.0.0.1:12004"},
		{"curl 127.0.0.1:8081 # as example.com", "curl 127.0.0.1:11000 # as example.com"},
		{"curl https://example.com", ""},
		{"curl 10.0.0.4:8080", ""},
	} {
		if got, err := (&block{text: c.text}).shell(p); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.text, got, err, c.want)
		}
	}
	e := &environment{bin: t.TempDir()}
	if out, err := e.bash("echo one\nfalse\necho two\n", 0, t.TempDir()); err == nil || !strings.HasPrefix(out, "one\n") || strings.Contains(out, "two") {
		t.Errorf("a command that fails: %q, %v", out, err)
	}
	if out, err := e.bash("printf 'a b'\n", 0, t.TempDir()); err != nil || out != "a b" {
		t.Errorf("%q, %v", out, err)
	}
}
