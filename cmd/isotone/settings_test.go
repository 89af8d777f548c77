package main

import (
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/wire"
	"github.com/isotone/isotone/internal/host/config"
)

func TestAddress_TheLongestFitsWhereverItIsWritten(t *testing.T) {
	longest := strings.Repeat("a", address.SizeMax-len(":1")) + ":1"
	if !address.Valid(longest, 1) || address.SizeMax != oracle.AddrMax {
		t.Errorf("an address has %d bytes, a record has room for %d", address.SizeMax, oracle.AddrMax)
	}
	if _, err := wire.AppendHello(nil, wire.FrameHello, wire.Hello{ClientAddr: longest, PeerAddr: longest}); err != nil {
		t.Error(err)
	}
}

// parseServe parses the settings of a command line, with the environment of nobody.
func parseServe(t *testing.T, args []string) (s config.Settings, err error) {
	t.Helper()
	var c struct {
		Serve struct{ config.Flags } `cmd:""`
	}
	parser, err := kong.New(&c, kong.Exit(func(int) {}), kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(append([]string{"serve"}, args...)); err != nil {
		return s, err
	}
	return c.Serve.Parse()
}

// FuzzServe_NoSettingCrashesANode: whatever settings are accepted, a node runs with them, and becomes
// ready if it is alone. A goroutine that panics ends the test.
func FuzzServe_NoSettingCrashesANode(f *testing.F) {
	long := strings.Repeat("a", 300)
	for _, args := range []string{
		"", "--advertise-addr=" + long + ".example:31371", "--advertise-addr=" + long[:254] + ":1", "--advertise-addr=b\xfc.example:1",
		"--peers=1=" + long[:254] + ":1", "--peers=1=" + long[:255] + ":1", "--peers=1=[fe80::1%a b]:1",
		"--node-id=281474976710655 --peers=281474976710655=a:1", "--node-id=2 --peers=2=a:1,1=127.0.0.1:1", "--peers=" + peerList(64), "--peers=" + peerList(65),
		"--priority=-1000", "--priority=1000", "--epoch-interval-ms=0", "--epoch-interval-ms=60000", "--clock-jump-max-ms=0",
		"--clock-jump-max-ms=86400000", "--interval-ms=20 --rtt-ms=4", "--epoch-deadline-limit=1", "--epoch-deadline-limit=1000000000",
		"--timestamp-request-buffer=1", "--timestamp-request-buffer=1000000", "--rtt-ms=1", "--loops=1", "--max-connections=1",
		"--max-connections=1000000", "--snowflake-layout=62/0/1", "--snowflake-layout=1/62/0", "--snowflake-layout=42/10/11", "--snowflake-epoch-ms=0",
		"--snowflake-lease-ms=3600000", "--snowflake-workers=64", "--worker-id=31 --datacenter-id=31", "--live-origins=*", "--request-stats --request-stats-sample=1000000", "--forward", "--anonymous=none", "--read-mode=lease", "--dashboard=0",
	} {
		f.Add(args)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Fields(text)
		if slices.ContainsFunc(args, reachesOut) {
			return
		}
		s, err := parseServe(t, args)
		if err != nil {
			return
		}
		p := newProcess(t, s.NodeID)
		s.HTTPHost, s.HTTPPort, s.ThriftPort, s.RaftAddr, s.DataDir = p.s.HTTPHost, p.s.HTTPPort, p.s.ThriftPort, p.s.RaftAddr, p.s.DataDir
		p.s = s
		p.start()
		select {
		case <-p.done: // with an error, which is an answer
			return
		case <-p.began:
		}
		if len(s.PeerMap()) == 1 && s.RTT <= 10*time.Millisecond {
			await.Done(t, await.Timeout, func() (bool, string) {
				select {
				case <-p.done:
					return true, ""
				default:
					return p.m.Node.Status().NotReadyTimestamps == "", fmt.Sprintf("%q: not ready: %s", text, p.log.String())
				}
			})
		}
	})
}

// reachesOut reports whether a setting concerns more than the process and its own directory: files,
// ports, and other machines.
func reachesOut(arg string) bool {
	if list, isPeers := strings.CutPrefix(arg, "--peers="); isPeers {
		entries := strings.Split(list, ",")
		return slices.ContainsFunc(entries[1:], func(entry string) bool { return !strings.Contains(entry, "=127.0.0.1:") })
	}
	name, _, _ := strings.Cut(arg, "=")
	return !slices.Contains([]string{
		"--node-id", "--advertise-addr", "--priority", "--epoch-interval-ms", "--clock-jump-max-ms", "--interval-ms", "--rtt-ms", "--epoch-deadline-limit",
		"--timestamp-request-buffer", "--loops", "--max-connections", "--snowflake-layout", "--snowflake-epoch-ms", "--snowflake-lease-ms", "--snowflake-workers",
		"--worker-id", "--datacenter-id", "--live-origins", "--live-interval-ms", "--request-stats", "--request-stats-sample", "--forward", "--anonymous", "--read-mode",
		"--dashboard", "--shutdown-delay-ms", "--require-tls", "--require-data",
	}, name)
}

// peerList is PEERS with n entries.
func peerList(n int) string {
	list := []string{"1=127.0.0.1:1"}
	for id := 2; id <= n; id++ {
		list = append(list, fmt.Sprintf("%d=127.0.0.1:%d", 1<<47+id, id))
	}
	return strings.Join(list, ",")
}

// TestChart_KnowsTheSettings: it refuses all others.
func TestChart_KnowsTheSettings(t *testing.T) {
	text := read(t, filepath.Join("..", "..", "deploy", "helm", "isotone", "templates", "checks.yaml"))
	var known []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, ` := list "`) {
			known = append(known, regexp.MustCompile(`[A-Z][A-Z0-9_]+`).FindAllString(line, -1)...)
		}
	}
	var settings []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[config.Flags]()) {
		if name := field.Tag.Get("env"); name != "" && name != "ISOTONE_CONFIG" {
			settings = append(settings, name)
		}
	}
	slices.Sort(known)
	slices.Sort(settings)
	if !slices.Equal(known, settings) {
		t.Errorf("the chart knows\n%q\nand not\n%q", known, settings)
	}
}
