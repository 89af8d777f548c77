package resp

import (
	"context"
	"encoding/hex"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These tests run programs that may be missing. They install nothing.

// tool returns the path of a program, or skips the test.
func tool(t *testing.T, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s: install %s", name, install)
	}
	return path
}

// output runs a program and returns what it says; input may be "".
func output(t *testing.T, input, path string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(input)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", path, args, err, stderr.String())
	}
	if strings.Contains(stderr.String(), "WARNING") {
		t.Errorf("%s %q: %s", path, args, stderr.String())
	}
	return string(out)
}

const redisTools = "the package redis-tools"

func TestRedisCLI(t *testing.T) {
	cli := tool(t, "redis-cli", redisTools)
	r := newRig(t, 2)
	port := r.node(1).port()
	var order ascending
	for range 3 {
		text := output(t, "", cli, "-p", port, "--raw", "TS")
		order.next(t, strings.TrimSuffix(text, "\n"))
	}
	for _, tt := range []struct {
		args string
		want string // a regular expression
	}{
		{"ping", "^PONG\n$"},
		{"-3 ping hello", "^hello\n$"},
		{"-n 0 echo x", "^x\n$"},
		{"--no-raw ts 10 lease", `^".{16,}"\n$`},
		{"ts 0", `^ERR count "0": want a whole number from 1 to 4294967296\n`},
		{"get x", "^ERR unknown command 'get', with args beginning with: 'x'"},
		{"-a secret --no-auth-warning ping", "PONG\n$"},
		{"--user default --pass secret --no-auth-warning ping", "^PONG\n$"},
		{"-3 hello 3", "server redis\nversion 7.2.0\nproto 3\nid [0-9]+\nmode cluster\nrole master\nmodules \n"},
		{"-3 info server", "isotone_version:test"},
		{"-3 cluster shards", "slots 0\n16383\n"},
		{"cluster nodes", "myself,master - 0 0 1 connected 0-16383\n"},
		{"command count", "^31\n$"},
		{"-3 command docs ts", "summary"},
		{"-c -p " + r.node(2).port() + " --no-raw ts 1 quorum", `^".{16,}"\n$`}, // redirected
		{"-p " + r.node(2).port() + " ts", "^MOVED 0 " + r.node(1).addr},
	} {
		got := output(t, "", cli, append([]string{"-p", port}, strings.Fields(tt.args)...)...)
		if !regexp.MustCompile(tt.want).MatchString(got) {
			t.Errorf("redis-cli %s\n got %q\nwant %s", tt.args, got, tt.want)
		}
	}
	if got := output(t, "PING\nTS 0\nCLIENT GETNAME\nQUIT\n", cli, "-p", port); !strings.HasPrefix(got, "PONG\nERR count") {
		t.Errorf("from a pipe: %q", got)
	}
	pipe := output(t, strings.Repeat(plain, 5000), cli, "-p", port, "--pipe")
	if !strings.Contains(pipe, "errors: 0, replies: 5000") {
		t.Errorf("--pipe: %q", pipe)
	}
}

func TestRedisBenchmark(t *testing.T) {
	benchmark := tool(t, "redis-benchmark", redisTools)
	r := newRig(t, 3)
	for _, args := range []string{
		"-c 8 -n 20000 -P 16 -q TS",
		"-c 8 -n 20000 -P 16 -q TS 1000",
		"-c 8 -n 2000 -q -3 TS",
		"-c 8 -n 2000 -q -t ping",
		"-c 8 -n 20000 -P 16 -q --threads 2 TS",
	} {
		before := r.node(1).served.Load()
		got := output(t, "", benchmark, append([]string{"-p", r.node(1).port()}, strings.Fields(args)...)...)
		rate := regexp.MustCompile(`: ([0-9.]+) requests per second`).FindStringSubmatch(got)
		if rate == nil || strings.Contains(strings.ToLower(got), "error") {
			t.Errorf("redis-benchmark %s\n%s", args, got)
			continue
		}
		served := r.node(1).served.Load() - before
		fields := strings.Fields(args)
		n, _ := strconv.Atoi(fields[3])
		if strings.Contains(args, "TS") && served < uint64(n) {
			t.Errorf("redis-benchmark %s: %d timestamps", args, served)
		}
		t.Logf("redis-benchmark %s: %s requests/s", args, rate[1])
	}
}

// TestRedisPy runs testdata/redispy.py with the Python that PYTHON names, or python3.
func TestRedisPy(t *testing.T) {
	name := os.Getenv("PYTHON")
	if name == "" {
		name = "python3"
	}
	python := tool(t, name, "Python 3 and redis-py")
	if err := exec.CommandContext(t.Context(), python, "-c", "import redis, redis.cluster, redis.asyncio").Run(); err != nil {
		t.Skipf("%s has no redis-py: pip install redis, or set PYTHON to the python of an environment that has it", python)
	}
	r := newRig(t, 3)
	run := func(part string) {
		t.Helper()
		out := strings.Fields(output(t, "", python, append([]string{"testdata/redispy.py", part}, r.addrs()...)...))
		if len(out) == 0 {
			t.Fatalf("%s says nothing", part)
		}
		var order ascending
		for _, word := range out {
			text, err := hex.DecodeString(word)
			if err != nil {
				t.Fatalf("%s: %v in %q", part, err, out)
			}
			order.next(t, string(text))
		}
	}
	run("plain")
	run("asyncio")
	run("cluster")

	// While a cluster client runs, the leadership moves, and the new leader is killed.
	go func() {
		time.Sleep(time.Second)
		r.lead(2)
		time.Sleep(time.Second)
		r.lead(0)
		r.node(2).stop()
		time.Sleep(100 * time.Millisecond)
		r.lead(3)
	}()
	run("follow")
	if r.node(2).served.Load() == 0 || r.node(3).served.Load() == 0 {
		t.Errorf("served: %d and %d", r.node(2).served.Load(), r.node(3).served.Load())
	}
}
