package main

import (
	"bytes"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/core/oracle"
)

// command runs one command line in this process.
func command(args ...string) (code int, out, err string) {
	var o, e bytes.Buffer
	code = run(patient(args), console{&o, &e})
	return code, o.String(), e.String()
}

// patient gives a command that asks nodes three minutes instead of its default of seconds, for which a busy machine may stop a node.
func patient(args []string) []string {
	asking := []string{"timestamp", "id", "status", "ready", "drain", "doctor", "member", "worker", "leader", "floor", "upgrade"}
	own := func(a string) bool { return a == "--" || a == "--help" || strings.HasPrefix(a, "--timeout") }
	if len(args) < 2 || !slices.Contains(asking, args[0]) || slices.ContainsFunc(args, own) {
		return args
	}
	return append(slices.Clone(args), "--timeout", "3m")
}

func TestHelp_NamesEveryCommandAndSetting(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"help"}} {
		code, out, _ := command(args...)
		if code != 0 {
			t.Errorf("%q: exit code %d", args, code)
		}
		for _, name := range []string{"serve", "dev", "sim", "bench", "version"} {
			if !strings.Contains(out, name) {
				t.Errorf("%q does not mention %s:\n%s", args, name, out)
			}
		}
	}
	_, out, _ := command("serve", "--help")
	if _, same, _ := command("help", "serve"); same != out {
		t.Errorf("help serve:\n%s", same)
	}
	for _, name := range []string{"--node-id", "$NODE_ID", "--http-port", "$RAFT_ADDR", "$PEERS", "$EPOCH_INTERVAL_MS", "$READ_MODE", "$RTT_MS"} {
		if !strings.Contains(out, name) {
			t.Errorf("serve --help does not mention %s", name)
		}
	}
	if strings.Contains(out, "fault-") {
		t.Error("serve --help shows a switch for tests")
	}
	for name, defaults := range map[string][]string{
		"proxy": {":8090", "125", "Default: 1.", "Default: on"},
		"bench": {"127.0.0.1:8080", "isotone-violations.jsonl"},
	} {
		_, out, _ := command(name, "--help")
		for _, want := range defaults {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("%s --help does not say %q:\n%s", name, want, out)
			}
		}
	}
}

func TestUsage_ErrorsExitWith2AndSayWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"nonsense", []string{"unknown command nonsense", "isotone --help"}},
		{"help nonsense", []string{"unknown command nonsense"}},
		{"--nonsense", []string{"unknown flag --nonsense", "isotone --help"}},
		{"serve --nonsense", []string{"unknown flag --nonsense", "isotone serve --help"}},
		{"cert node one", []string{"one", "isotone cert node --help"}},
		{"member list --endpoint=", []string{"--endpoint: an address is empty", "isotone member list --help"}},
		{"doctor --endpoint a:1,,b:1", []string{"--endpoint: an address is empty"}},
		{"bench --rate fast", []string{"--rate", "isotone bench --help"}},
		{"version nonsense", []string{"unexpected argument nonsense", "isotone version --help"}},
		{"serve --node-id 0 --http-port x --rtt-ms 0 --peers 1", []string{"NODE_ID", "HTTP_PORT", "RTT_MS", "PEERS"}},
		{"serve --epoch-interval-ms -1 --rtt-ms -5", []string{"EPOCH_INTERVAL_MS", "RTT_MS"}},
		{"serve --live foo", []string{`LIVE (--live) = "foo": want name=source`}},
		{"dev --port 65535", []string{"--port"}},
		{"sim --runs 0", []string{"--runs"}},
		{"upgrade show --endpoint ftp://node1", []string{"--endpoint", "ftp://node1"}},
		{"sim --runs 2 --trace", []string{"--trace", "--seed"}},
	} {
		code, _, err := command(strings.Fields(tc.args)...)
		if code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", tc.args, code, exitUsage)
		}
		for _, want := range tc.want {
			if !strings.Contains(err, want) {
				t.Errorf("%s: %q is missing in: %s", tc.args, want, err)
			}
		}
	}
}

func TestAddressInUse_HasOneHint(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	process, dev := "(is another process using it?)", "(is another \"isotone dev\" running? --port takes other ports)"
	for _, tt := range []struct{ args, hint string }{
		{"serve --http-host 127.0.0.1 --data-dir " + t.TempDir() + " --http-port " + port, process},
		{"proxy --backend http://127.0.0.1:1 --listen " + addr, process},
		{"proxy --backend http://127.0.0.1:1 --listen 127.0.0.1:0 --admin " + addr, process},
		{"dev --port " + port, dev},
	} {
		code, _, err := command(strings.Fields(tt.args)...)
		if code != exitFailure || !strings.Contains(err, addr) || !strings.Contains(err, tt.hint) || strings.Count(err, "(is another") != 1 {
			t.Errorf("%s: exit code %d, want the hint %s: %s", tt.args, code, tt.hint, err)
		}
	}
}

func TestVersion_IsReadableForMachines(t *testing.T) {
	_, out, _ := command("version", "--json")
	var v buildVersion
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Version == "" || v.Go == "" || v.FeatureLevel != oracle.LevelNewest {
		t.Errorf("%q: %v", out, err)
	}
	_, out, _ = command("version")
	if !strings.HasPrefix(out, "isotone "+version) {
		t.Errorf("version: %q", out)
	}
	if code, flag, err := command("--version"); code != 0 || flag != out || err != "" {
		t.Errorf("--version: exit code %d, %q%s", code, flag, err)
	}
}

func TestVersion_HasALineThatLeavesOutWhatIsNotKnown(t *testing.T) {
	v := buildVersion{Version: "v1.2.3", FeatureLevel: 3, Go: "go1.26.0", Platform: "linux/amd64"}
	if got, want := v.String(), "isotone v1.2.3 feature-level 3 go1.26.0 linux/amd64"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	v.Revision, v.Date, v.Modified = "0123abc", "2026-11-23T11:17:49Z", true
	if got, want := v.String(), "isotone v1.2.3 0123abc 2026-11-23T11:17:49Z modified feature-level 3 go1.26.0 linux/amd64"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// oneGoroutine skips a test with -short, which CI's step race sets: one goroutine has no races. The step test runs it.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short is for the race detector, and this has one goroutine; go test without -short runs it")
	}
}

func TestSim_ReplaysASeed(t *testing.T) {
	oneGoroutine(t)
	hash := func() string {
		code, out, err := command("sim", "--seed", "3", "--json")
		var s simSummary
		if e := json.Unmarshal([]byte(out), &s); e != nil || code != 0 || s.Runs != 1 || s.Hash == "" || s.Events < 1000 {
			t.Fatalf("exit code %d, %v\n%s%s", code, e, out, err)
		}
		return s.Hash
	}
	if a, b := hash(), hash(); a != b {
		t.Errorf("seed 3 gave %s, then %s", a, b)
	}
	_, out, _ := command("sim", "--seed", "3", "--duration", "1s", "--trace")
	if !strings.Contains(out, "starts") || !strings.Contains(out, "violations   0") {
		t.Errorf("the trace of seed 3:\n%.2000s", out)
	}
}
