package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/core/wire"
)

func TestMain(m *testing.M) {
	// The thread that starts all processes lives as long as this one.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/isotone/isotone/internal/check/child.callAll"))
}

// TestIntervals_DistanceCostsTheOracleAndNotTheClock runs it all with short delays. What a transaction
// takes at least is certain: delays only add to it. That some are faster is asked of one of each kind,
// not of all, so a busy machine does not matter.
func TestIntervals_DistanceCostsTheOracleAndNotTheClock(t *testing.T) {
	dir := t.TempDir()
	binary, err := cluster.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	svg := filepath.Join(dir, "picture.svg")
	args := strings.Fields("--ab 10ms --ac 30ms --bc 20ms --interval 1s --workers 2 --warmup 100ms --duration 1500ms --isotone " + binary + " --svg " + svg)
	s, err := parseSettings(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	r, err := measure(t.Context(), s, dir, &progress)
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for i, want := range []struct{ oracle, interval, below time.Duration }{
		{ms(20 + 20), ms(20), ms(40)}, // a round of the leader with B, and the write to B
		{ms(20 + 20 + 20), ms(20), ms(60)},
		{ms(60 + 20 + 40), ms(40), ms(120)},
	} {
		oracle, clock := r.regions[i].latencies[fromOracle][0], r.regions[i].latencies[fromClock][0]
		if oracle < want.oracle || clock < want.interval || clock >= want.below {
			t.Errorf("region %s: from the oracle at least %v, want %v; by intervals %v, want %v to %v",
				regionNames[i], oracle, want.oracle, clock, want.interval, want.below)
		}
	}
	// In C the interval is wider than the write is long.
	if width := r.regions[2].width[0]; width < ms(60) {
		t.Errorf("an interval of %v; nobody in C can know the time as exactly", width)
	}
	if beyond := quantile(r.regions[2].beyond, 0.5); beyond == 0 {
		t.Error("no wait was longer than a write")
	}
	if got := table(r) + summary(r); strings.Count(got, "\n") != 6 || !strings.Contains(got, "without a violation") {
		t.Errorf("the table:\n%s", got)
	}
	checkPicture(t, picture(s, r), "Region C", "60 ms to the leader")
}

func checkPicture(t *testing.T, text string, wants ...string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the picture: %v", err)
		}
	}
	for _, want := range wants {
		if !strings.Contains(text, ">"+want+"<") {
			t.Errorf("the picture lacks %s", want)
		}
	}
}

// goCommand returns the go command, which is none of isotone.
func goCommand(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRun_EndsEarly(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	var progress bytes.Buffer
	started := writerFunc(func(b []byte) (int, error) {
		if bytes.Contains(b, []byte("starting")) {
			cancel(errors.New("enough"))
		}
		return progress.Write(b)
	})
	if code := run(ctx, []string{"--isotone", goCommand(t)}, io.Discard, started); code != exitFailure || !strings.Contains(progress.String(), "enough") {
		t.Errorf("exit code %d: %s", code, &progress)
	}
}

// TestRun_SaysWhyANodeHasEnded: go knows no command "serve".
func TestRun_SaysWhyANodeHasEnded(t *testing.T) {
	var progress bytes.Buffer
	missing := filepath.Join(t.TempDir(), "missing")
	if code := run(t.Context(), []string{"--isotone", missing}, io.Discard, &progress); code != exitFailure || !strings.Contains(progress.String(), "missing") {
		t.Errorf("exit code %d: %s", code, &progress)
	}
	progress.Reset()
	if code := run(t.Context(), []string{"--isotone", goCommand(t)}, io.Discard, &progress); code != exitFailure || !strings.Contains(progress.String(), "has ended") {
		t.Errorf("exit code %d: %s", code, &progress)
	}
}

func TestParseSettings(t *testing.T) {
	s, err := parseSettings(nil, io.Discard)
	if err != nil || s.tick != 80*time.Millisecond || s.nearest(0) != 1 || s.nearest(1) != 0 || s.nearest(2) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	for args, want := range map[string]string{
		"--ab 1s --workers 0":           "--workers 0",
		"--ab 300ms --interval 10s":     "--ab",
		"--interval 399ms":              "--interval",
		"--duration 1h":                 "--duration",
		"--tick 1ms":                    "--tick",
		"--ac -1ms --bc 201ms --warm=1": "-warm",
		"now":                           "unexpected",
	} {
		if _, err := parseSettings(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	var usage bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, io.Discard, &usage); code != 0 || !strings.Contains(usage.String(), "-interval") {
		t.Errorf("--help: exit code %d: %s", code, &usage)
	}
	if code := run(t.Context(), []string{"--workers", "0"}, io.Discard, io.Discard); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
}

// TestFront_DelaysByTheNodeThatDials: the first bytes arrive as they were sent, and with all that
// follows they are late by that node's delay. A stranger is not passed on.
func TestFront_DelaysByTheNodeThatDials(t *testing.T) {
	wires := newNetwork(t.Context())
	defer wires.close()
	target, err := wires.echo()
	if err != nil {
		t.Fatal(err)
	}
	front, err := wires.front(target, map[uint64]time.Duration{2: 0, 3: 30 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for id, least := range map[uint64]time.Duration{2: 0, 3: 60 * time.Millisecond, 4: 0} {
		hello, err := wire.AppendHello(nil, wire.FrameHello, wire.Hello{NodeID: id, Session: 7})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", front)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		began := time.Now()
		for _, part := range [][]byte{hello[:9], hello[9:]} {
			if _, err := conn.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		back := make([]byte, len(hello))
		_, err = io.ReadFull(conn, back)
		took := time.Since(began)
		_ = conn.Close()
		if known := id != 4; known != (err == nil) || known && (!bytes.Equal(back, hello) || took < least) {
			t.Errorf("node %d: %v after %v, want at least %v", id, err, took, least)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
