package config_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/snowflake"
)

// serve stands for a command of cmd/isotone.
type serve struct {
	config.Flags
}

// parse runs a command line with one command, as the binary does. Of the
// settings in the environment it sees those of env only.
func parse(t *testing.T, env map[string]string, args ...string) (config.Flags, error) {
	t.Helper()
	for _, name := range append(fixed, "ISOTONE_CONFIG", "TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA", "HTTP_HOST") {
		t.Setenv(name, env[name])
		if _, set := env[name]; !set {
			_ = os.Unsetenv(name) // t.Setenv brings it back
		}
	}
	var cli struct {
		Serve serve `cmd:""`
		Other serve `cmd:""`
	}
	parser, err := kong.New(&cli, kong.Exit(func(int) { t.Fatal("kong exits") }))
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(append([]string{"serve"}, args...))
	return cli.Serve.Flags, err
}

// parseAll parses a command line and its settings. It fails the test if there is a fault.
func parseAll(t *testing.T, env map[string]string, args ...string) config.Settings {
	t.Helper()
	f, err := parse(t, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Parse()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// defaults returns the flags of a command line without any.
func defaults(t *testing.T) config.Flags {
	t.Helper()
	f, err := parse(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// file writes a settings file and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// fixed are the environment names that may never change.
var fixed = []string{
	"NODE_ID", "HTTP_PORT", "RAFT_ADDR", "PEERS", "ADVERTISE_ADDR", "DATA_DIR",
	"EPOCH_INTERVAL_MS", "EPOCH_DEADLINE_LIMIT", "TIMESTAMP_REQUEST_BUFFER",
	"READ_MODE", "RTT_MS", "LOOPS", "DEBUG", "PRETTY", "LOG_TIME_MS", "THRIFT_PORT", "PD_PORT", "ADMIN_ADDR", "METRICS_ADDR", "REQUIRE_TLS", "REQUIRE_DATA",
	"TRACE_ENDPOINT", "TRACE_SAMPLE", "PEER_TLS_CERT", "PEER_TLS_KEY", "PEER_TLS_CA", "PEER_TLS_CRL", "TLS_CLIENT_CRL", "PEER_ALLOWED_NAMES", "PEER_INSECURE", "JOIN", "TIMELINES", "GROUP_PLACEMENT", "CLUSTER_SLOTS", "REDIS_LOCKS", "PD_KEYSPACE_GROUPS",
}

func TestDefault_IsWhatNothingSetGives(t *testing.T) {
	want := config.Settings{
		NodeID: 1, HTTPPort: 8080, RaftAddr: "localhost:60001", DataDir: "_raft",
		EpochInterval: 100 * time.Millisecond, ClockJumpMax: 500 * time.Millisecond, EpochDeadlineLimit: 100, TimestampRequestBuffer: 10_000,
		ReadMode: isotone.ReadQuorum, RTT: 10 * time.Millisecond, MaxConnections: 20_000, ThriftPort: -1, PDPort: config.PortOff,
		SnowflakeLayout: snowflake.Twitter, SnowflakeLease: 10 * time.Second, FixedWorker: -1,
		GroupSettle: 30 * time.Second, LiveInterval: time.Second, Dashboard: true, RequestStatsSample: 1, TraceSample: 100,
	}
	parsed := parseAll(t, nil)
	for from, got := range map[string]config.Settings{"Default": config.Default(), "parser": parsed} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", from, got, want)
		}
	}
	cert, key, set := parsed.TLSFiles()
	if cert != filepath.Join("_raft", "cert.pem") || key != filepath.Join("_raft", "key.pem") || set {
		t.Errorf("TLSFiles() = %q, %q, %v", cert, key, set)
	}
	if got := parsed.Advertise(8080); got != "localhost:8080" {
		t.Errorf("Advertise(8080) = %q", got)
	}
	if got := parsed.HTTPAddr(); got != ":8080" {
		t.Errorf("HTTPAddr() = %q", got)
	}
}

func TestSettings_FlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	withFile := file(t, `{"http-port": 4, "rtt-ms": "4", "debug": true, "read-mode": "lease", "pretty": 1}`)
	env := map[string]string{"HTTP_PORT": "3", "RTT_MS": "3", "PRETTY": "false", "READ_MODE": "", "DATA_DIR": ""}
	for _, tt := range []struct {
		name string
		path map[string]string
		args []string
	}{
		{"file by flag", nil, []string{"--config", withFile}},
		{"file by environment", map[string]string{"ISOTONE_CONFIG": withFile}, nil},
		{"flag names the file, not the environment", map[string]string{"ISOTONE_CONFIG": "/nowhere"}, []string{"--config=" + withFile}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := maps.Clone(env)
			maps.Copy(all, tt.path)
			s := parseAll(t, all, append(tt.args, "--http-port=2")...)
			if s.HTTPPort != 2 || s.RTT != 3*time.Millisecond || !s.Debug || s.NodeID != 1 {
				t.Errorf("flag %d, environment %v, file %v, default %d", s.HTTPPort, s.RTT, s.Debug, s.NodeID)
			}
			if s.Pretty {
				t.Error("PRETTY=false must win over the file's 1")
			}
			if s.ReadMode != isotone.ReadLease || s.DataDir != "_raft" {
				t.Errorf("an empty variable hides file or default: %v, %q", s.ReadMode, s.DataDir)
			}
		})
	}
}

func TestSettings_LosingLayerMayBeBad(t *testing.T) {
	s := parseAll(t, map[string]string{"NODE_ID": "abc"}, "--node-id=7", "--config", file(t, `{"node-id": "x"}`))
	if s.NodeID != 7 {
		t.Errorf("got %d, want 7", s.NodeID)
	}
}

func TestSwitch_AcceptsBareFlagAndFourSpellings(t *testing.T) {
	for arg, want := range map[string]bool{
		"--debug": true, "--debug=1": true, "--debug=TRUE": true, "--debug=0": false, "--debug=false": false,
	} {
		s := parseAll(t, nil, arg, "--pretty")
		if s.Debug != want || !s.Pretty {
			t.Errorf("%s: debug %v, pretty %v", arg, s.Debug, s.Pretty)
		}
	}
}

func TestValidate_ListsEveryFaultAtOnce(t *testing.T) {
	path := file(t, `{"http-prt": 1, "config": "x", "data-dir": [1], "rtt-ms": 0}`)
	env := map[string]string{"NODE_ID": "abc", "DEBUG": "maybe", "READ_MODE": "fast", "EPOCH_INTERVAL_MS": "60001"}
	_, err := parse(t, env, "--http-port=99999999", "--raft-addr=nowhere", "--admin-addr=:6060", "--metrics-addr=x", "--anonymous=timestamps,root", "--require-tls=x", "--redis-locks=yes", "--require-data=2", "--advertise-addr=h:0",
		"--peers=0=a:1,1=b:1,1=c:1,2=b:1,3=d", "--tls-key=k", "--clock-jump-max-ms=86400001", "--epoch-deadline-limit=0",
		"--timestamp-request-buffer=1000001", "--interval-ms=19", "--shutdown-delay-ms=600001", "--loops=65", "--max-connections=0", "--thrift-port=-1", "--pd-port=65536", "--pd-keyspace-groups=groups.json", "--pretty=2", "--log-time-ms=",
		"--http-host=a:1", "--snowflake-epoch-ms=x", "--snowflake-layout=1/2/3", "--snowflake-lease-ms=999", "--snowflake-workers=65",
		"--datacenter-id=1", "--live-interval-ms=99", "--dashboard=2", "--request-stats=on", "--request-stats-sample=0",
		"--trace-endpoint=collector:4318", "--trace-sample=-1", "--timelines=x", "--group-placement=none", "--cluster-slots=owners",
		"--live=foo", "--live-origins=example.com", "--config", path)
	var faults config.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v, want Faults", err)
	}
	want := []config.Fault{
		{"ISOTONE_CONFIG", "config", path, `unknown key "config"`},
		{"ISOTONE_CONFIG", "config", path, `key "data-dir": want a string`},
		{"ISOTONE_CONFIG", "config", path, `unknown key "http-prt"`},
		{"NODE_ID", "node-id", "abc", "from 1 to 281474976710655"},
		{"HTTP_HOST", "http-host", "a:1", "without a port"},
		{"HTTP_PORT", "http-port", "99999999", "from 0 to 65535"},
		{"ADVERTISE_ADDR", "advertise-addr", "h:0", "from 1 to 65535"},
		{"RAFT_ADDR", "raft-addr", "nowhere", "want host:port"},
		{"ADMIN_ADDR", "admin-addr", ":6060", "want host:port"},
		{"METRICS_ADDR", "metrics-addr", "x", "want host:port"},
		{"ANONYMOUS", "anonymous", "timestamps,root", "is no role"},
		{"PEERS", "peers", "0=a:1", "id of 1 or more"},
		{"PEERS", "peers", "1=c:1", "every id once"},
		{"PEERS", "peers", "2=b:1", "every address once"},
		{"PEERS", "peers", "3=d", "want host:port"},
		{"TLS_CERT", "tls-cert", "", "both or neither"},
		{"EPOCH_INTERVAL_MS", "epoch-interval-ms", "60001", "from 0 to 60000"},
		{"CLOCK_JUMP_MAX_MS", "clock-jump-max-ms", "86400001", "from 0 to 86400000"},
		{"EPOCH_DEADLINE_LIMIT", "epoch-deadline-limit", "0", "from 1"},
		{"TIMESTAMP_REQUEST_BUFFER", "timestamp-request-buffer", "1000001", "to 1000000"},
		{"READ_MODE", "read-mode", "fast", "quorum or lease"},
		{"TIMELINES", "timelines", "x", "0, 1, true or false"},
		{"GROUP_PLACEMENT", "group-placement", "none", "spread or leader"},
		{"CLUSTER_SLOTS", "cluster-slots", "owners", "leader or timelines"},
		{"RTT_MS", "rtt-ms", "0", "from 1 to 10000"},
		{"INTERVAL_MS", "interval-ms", "19", "want 0, for no intervals, or a whole number from 20 to 10000"},
		{"SHUTDOWN_DELAY_MS", "shutdown-delay-ms", "600001", "from 0 to 600000"},
		{"LOOPS", "loops", "65", "from 0 to 64"},
		{"MAX_CONNECTIONS", "max-connections", "0", "from 1 to 1000000"},
		{"THRIFT_PORT", "thrift-port", "-1", "want off, or a whole number from 0 to 65535"},
		{"PD_PORT", "pd-port", "65536", "want off, or a whole number from 0 to 65535"},
		{"PD_KEYSPACE_GROUPS", "pd-keyspace-groups", "groups.json", "needs PD_PORT, and TIMELINES=1"},
		{"SNOWFLAKE_EPOCH_MS", "snowflake-epoch-ms", "x", "unix milliseconds"},
		{"SNOWFLAKE_LAYOUT", "snowflake-layout", "1/2/3", "63"},
		{"SNOWFLAKE_LEASE_MS", "snowflake-lease-ms", "999", "from 1000 to 3600000"},
		{"SNOWFLAKE_WORKERS", "snowflake-workers", "65", "from 0 to 64"},
		{"WORKER_ID", "worker-id", "", "DATACENTER_ID is set"},
		{"LIVE_INTERVAL_MS", "live-interval-ms", "99", "from 100 to 3600000"},
		{"REDIS_LOCKS", "redis-locks", "yes", "0, 1, true or false"},
		{"REQUIRE_DATA", "require-data", "2", "0, 1, true or false"},
		{"REQUIRE_TLS", "require-tls", "x", "0, 1, true or false"},
		{"DASHBOARD", "dashboard", "2", "0, 1, true or false"},
		{"REQUEST_STATS", "request-stats", "on", "0, 1, true or false"},
		{"REQUEST_STATS_SAMPLE", "request-stats-sample", "0", "from 1 to 1000000"},
		{"TRACE_ENDPOINT", "trace-endpoint", "collector:4318", "http://localhost:4318"},
		{"TRACE_SAMPLE", "trace-sample", "-1", "from 0 to 1000000"},
		{"DEBUG", "debug", "maybe", "0, 1, true or false"},
		{"PRETTY", "pretty", "2", "0, 1, true or false"},
		{"LOG_TIME_MS", "log-time-ms", "", "0, 1, true or false"},
		{"LIVE", "live", "foo", "name=source"},
		{"LIVE_ORIGINS", "live-origins", "example.com", "scheme://"},
	}
	for i := range max(len(want), len(faults)) {
		switch {
		case i >= len(want):
			t.Errorf("unexpected: %v", faults[i])
		case i >= len(faults):
			t.Errorf("missing: %v", want[i])
		default:
			got := faults[i]
			hint := want[i].Want
			got.Want, want[i].Want = "", ""
			if got != want[i] || !strings.Contains(faults[i].Want, hint) {
				t.Errorf("fault %d: got %v, want %v … %s", i, faults[i], want[i], hint)
			}
		}
		if i < len(faults) && !strings.Contains(err.Error(), "\n  "+faults[i].Error()) {
			t.Errorf("the message lacks %v", faults[i])
		}
	}
	var one config.Fault
	if !errors.As(err, &one) || one != faults[0] {
		t.Errorf("errors.As finds %v, want the first fault", one)
	}
}

// An address that others are to connect to must not mean every interface of this machine.
func TestParse_RefusesUnspecifiedAddresses(t *testing.T) {
	for _, host := range []string{"", "0.0.0.0", "[::]", "[0:0::0]", "[::ffff:0.0.0.0]", "[::%eth0]"} {
		for flag, value := range map[string]string{"advertise-addr": host + ":8080", "peers": "1=" + host + ":60001"} {
			_, err := parse(t, nil, "--"+flag+"="+value)
			var fault config.Fault
			if !errors.As(err, &fault) || fault.Flag != flag || fault.Value != value || !strings.Contains(fault.Want, "HTTP_HOST and RAFT_ADDR") {
				t.Errorf("--%s=%s: %v", flag, value, err)
			}
		}
	}
	for _, host := range []string{"", "0.0.0.0", "[::]", "[::ffff:0.0.0.0]"} {
		_, err := parse(t, nil, "--join=10.0.0.1:8080,"+host+":8080")
		var fault config.Fault
		if !errors.As(err, &fault) || fault.Flag != "join" || fault.Value != host+":8080" || !strings.Contains(fault.Want, "10.0.0.1") {
			t.Errorf("--join with %s:8080: %v", host, err)
		}
	}
	s := parseAll(t, nil, "--http-host=0.0.0.0", "--raft-addr=0.0.0.0:60001", "--advertise-addr=[::1]:8080", "--peers=1=10.0.0.1:60001")
	if s.AdvertiseAddr != "[::1]:8080" || s.Peers[1] != "10.0.0.1:60001" || s.RaftAddr != "0.0.0.0:60001" {
		t.Errorf("%+v", s)
	}
	if s := parseAll(t, nil, "--shutdown-delay-ms=2500"); s.ShutdownDelay != 2500*time.Millisecond {
		t.Errorf("SHUTDOWN_DELAY_MS: %v", s.ShutdownDelay)
	}
}

// What a node calls itself in PEERS is for the other members.
func TestParse_RefusesAnOwnEntryThatOnlyThisMachineReaches(t *testing.T) {
	for peers, refused := range map[string]string{
		"1=localhost:60001,2=10.0.0.2:60001,3=10.0.0.3:60001": "1=localhost:60001",
		"1=127.0.1.1:60001,2=node2.example:60001":             "1=127.0.1.1:60001",
		"1=[::1]:60001,2=[fd00::2]:60001":                     "1=[::1]:60001",
		"1=localhost:60001":                                   "",
		"1=localhost:60001,2=127.0.0.1:60002":                 "",
		"1=10.0.0.1:60001,2=localhost:60002":                  "", // through a tunnel
		"1=node1.example:60001,2=10.0.0.2:60001":              "",
	} {
		_, err := parse(t, nil, "--peers="+peers)
		var fault config.Fault
		if errors.As(err, &fault) != (refused != "") || fault.Value != refused || refused != "" && !strings.Contains(fault.Want, "node 2 and the other members reach this node") {
			t.Errorf("PEERS=%s: %v", peers, err)
		}
	}
}

func TestParse_IntervalOutlastsSomeTicks(t *testing.T) {
	for args, want := range map[string]time.Duration{
		"": 0, "--interval-ms=0": 0, "--interval-ms=50": 50 * time.Millisecond, "--interval-ms=10000 --rtt-ms=2000": 10 * time.Second,
		"--interval-ms=20 --rtt-ms=4": 20 * time.Millisecond,
	} {
		if s := parseAll(t, nil, strings.Fields(args)...); s.Interval != want {
			t.Errorf("%q: %v", args, s.Interval)
		}
	}
	for args, hint := range map[string]string{
		"--interval-ms=49": "so 50 or more", "--interval-ms=10000 --rtt-ms=2001": "so 10005 or more",
		"--interval-ms=10001": "from 20 to 10000", "--interval-ms=-1": "from 20 to 10000", "--interval-ms=": "from 20 to 10000",
	} {
		_, err := parse(t, nil, strings.Fields(args)...)
		var fault config.Fault
		if !errors.As(err, &fault) || fault.Env != "INTERVAL_MS" || !strings.Contains(fault.Want, hint) {
			t.Errorf("%q: %v", args, err)
		}
	}
	_, err := parse(t, nil, "--interval-ms=100", "--epoch-interval-ms=501")
	if fault := (config.Fault{}); !errors.As(err, &fault) || fault.Env != "EPOCH_INTERVAL_MS" || !strings.Contains(fault.Want, "at most 500 with INTERVAL_MS") {
		t.Errorf("a long epoch: %v", err)
	}
}

func TestValidate_ReportsOneFaultAndChangesNothing(t *testing.T) {
	for _, tt := range []struct {
		change func(*config.Flags)
		want   string
	}{
		{func(s *config.Flags) { s.NodeID = "" }, "NODE_ID (--node-id) = \"\": want a whole number"},
		{func(s *config.Flags) { s.NodeID = "281474976710656" }, "NODE_ID"},
		{func(s *config.Flags) { s.HTTPPort = "65536" }, "HTTP_PORT"},
		{func(s *config.Flags) { s.HTTPHost = "[::1]" }, "HTTP_HOST"},
		{func(s *config.Flags) { s.RaftAddr = ":60001" }, "RAFT_ADDR"},
		{func(s *config.Flags) { s.RaftAddr = "::1:60001" }, "RAFT_ADDR"},
		{func(s *config.Flags) { s.DataDir = "" }, "DATA_DIR"},
		{func(s *config.Flags) { s.TLSCert = "c" }, "TLS_KEY"},
		{func(s *config.Flags) { s.RTTMS = "10ms" }, "RTT_MS"},
	} {
		s := defaults(t)
		tt.change(&s)
		before := s
		err := s.Validate()
		var faults config.Faults
		if !errors.As(err, &faults) || len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), tt.want) {
			t.Errorf("got %v, want one fault %s", err, tt.want)
		}
		if !reflect.DeepEqual(s, before) {
			t.Errorf("Validate changed %+v to %+v", before, s)
		}
		if got, err := s.Parse(); err == nil || !reflect.DeepEqual(got, config.Settings{}) {
			t.Errorf("Parse returns %+v, %v", got, err)
		}
	}
	f := defaults(t)
	f.HTTPPort, f.RaftAddr, f.HTTPHost, f.EpochIntervalMS = "0", "[::1]:0", "::", "0"
	f.TLSCert, f.TLSKey, f.TLSClientCA, f.TLSClientCRL, f.AdvertiseAddr = "c", "k", "ca", "crl", "a.example:443"
	s, err := f.Parse()
	if err != nil {
		t.Error(err)
	}
	if cert, key, set := s.TLSFiles(); cert != "c" || key != "k" || !set {
		t.Errorf("TLSFiles() = %q, %q, %v", cert, key, set)
	}
	if got := s.Advertise(1); got != "a.example:443" {
		t.Errorf("Advertise(1) = %q", got)
	}
	if got := s.HTTPAddr(); got != "[::]:0" {
		t.Errorf("HTTPAddr() = %q", got)
	}
}

func TestSettings_RefusesAFileThatIsNone(t *testing.T) {
	for _, path := range []string{
		filepath.Join(t.TempDir(), "missing.json"),
		file(t, `{"node-id": 1`),
		file(t, `{"node-id": 1} {}`),
		file(t, `[]`),
		file(t, `{"node-id": null}`),
		file(t, `{"data-dir": "`+strings.Repeat("x", 1<<20)+`"}`),
	} {
		_, err := parse(t, map[string]string{"HTTP_PORT": "x"}, "--config", path)
		var faults config.Faults
		if !errors.As(err, &faults) || len(faults) != 2 || faults[0].Env != "ISOTONE_CONFIG" {
			t.Errorf("%s: got %v, want the file's fault and HTTP_PORT's", path, err)
		}
	}
}

func TestPeerMap(t *testing.T) {
	for _, tt := range []struct {
		peers string
		id    string
		want  map[uint64]string // nil: a fault
	}{
		{"", "1", map[uint64]string{1: "localhost:60001"}},
		{"", "5", map[uint64]string{5: "localhost:60001"}},
		{"1=a:1,2=b:2", "2", map[uint64]string{1: "a:1", 2: "b:2"}},
		{"2=[::1]:2 , 1=10.0.0.1:65535", "1", map[uint64]string{1: "10.0.0.1:65535", 2: "[::1]:2"}},
		{"1=a:1", "2", nil},
		{"1=a:1,", "1", nil},
		{",", "1", nil},
		{"a:1", "1", nil},
		{"1=", "1", nil},
		{"1=a", "1", nil},
		{"1=:1", "1", nil},
		{"1=a:0", "1", nil},
		{"1=a:65536", "1", nil},
		{"1=a:http", "1", nil},
		{"1=a b:1", "1", nil},
		{"x=a:1", "1", nil},
		{"-1=a:1", "1", nil},
		{"1=a:1,1=b:1", "1", nil},
		{"1=a:1,2=a:1", "1", nil},
		{"1=a:1=b:1", "1", nil},
	} {
		f := defaults(t)
		f.Peers, f.NodeID = tt.peers, tt.id
		s, err := f.Parse()
		if (err == nil) != (tt.want != nil) || err == nil && !maps.Equal(s.PeerMap(), tt.want) {
			t.Errorf("PEERS=%q NODE_ID=%s: got %v, %v; want %v", tt.peers, tt.id, s.Peers, err, tt.want)
		}
	}
}

func TestHelp_NamesEverySettingAsFlagAndEnvironment(t *testing.T) {
	var cli struct {
		Serve serve `cmd:""`
	}
	var out bytes.Buffer
	parser, err := kong.New(&cli, kong.Writers(&out, &out), kong.Exit(func(int) { panic("exit") }))
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = parser.Parse([]string{"serve", "--help"})
	}()
	help := strings.Join(strings.Fields(out.String()), " ")
	for _, env := range append(fixed, "SNOWFLAKE_LAYOUT", "SNOWFLAKE_EPOCH_MS", "SNOWFLAKE_LEASE_MS", "SNOWFLAKE_WORKERS", "WORKER_ID", "DATACENTER_ID", "LIVE", "LIVE_INTERVAL_MS", "LIVE_ORIGINS", "DASHBOARD", "FORWARD", "REQUEST_STATS", "REQUEST_STATS_SAMPLE", "HTTP_HOST", "TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA", "FORWARD_CA", "FORWARD_CREDENTIAL_FILE") {
		flag := "--" + strings.ReplaceAll(strings.ToLower(env), "_", "-")
		if !strings.Contains(help, flag) || !strings.Contains(help, "($"+env+")") {
			t.Errorf("the help lacks %s or %s", flag, env)
		}
	}
	for _, text := range []string{"--config=FILE", "$ISOTONE_CONFIG", "localhost:60001", "41/5/5/12", "7609, if it is free"} {
		if !strings.Contains(help, text) {
			t.Errorf("the help lacks %q", text)
		}
	}
}

func TestParseTraceEndpoint(t *testing.T) {
	for text, want := range map[string]string{
		"http://localhost:4318": "http://localhost:4318/v1/traces", "https://c.example/": "https://c.example/v1/traces",
		"http://[::1]:4318/otlp/traces?tenant=a": "http://[::1]:4318/otlp/traces?tenant=a",
		"localhost:4318":                         "", "grpc://localhost:4317": "", "http://": "", "/v1/traces": "", "http://u:p@c": "", "http://c/#x": "", "": "",
	} {
		got, err := config.ParseTraceEndpoint(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}
