package demolive

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/bench"
)

func TestCount_DocumentsAreLinesThatGrowUntilAllIsCounted(t *testing.T) {
	const steps = 20
	c := newCount(steps, 1)
	before := 0
	for version := 1; version <= steps+5; version++ {
		data, err := c.next(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		var v Votes
		if err := json.Unmarshal(data, &v); err != nil || v.Version != version || versionOf(data) != version {
			t.Fatalf("version %d: %v, %s", version, err, data)
		}
		if bytes.ContainsAny(data, "\r\n") || len(data) > documentMax-len("data: \n") || len(data) < 3000 {
			t.Errorf("%d bytes: %s", len(data), data)
		}
		all := 0
		for _, p := range v.Parties {
			all += p.Votes
		}
		if all < before || (version >= steps) != (v.Counted == 100) {
			t.Errorf("version %d: %d votes after %d, %d %% counted", version, all, before, v.Counted)
		}
		before = all
		for _, d := range v.Districts {
			if version >= steps && d.Counted != 100 {
				t.Errorf("district %s: %d %% counted in the end", d.Name, d.Counted)
			}
		}
	}
}

func TestOptions_AllFaultsAreToldAtOnceWithoutThePassword(t *testing.T) {
	good := Default()
	good.Command = []string{"isotone"}
	good.Redis = "redis://:secret@localhost:6379/2#votes"
	if err := good.validate(1 << 20); err != nil {
		t.Error(err)
	}
	bad := Options{Readers: -1, Duration: time.Second, TLS: "maybe", Redis: "rediss://:secret@localhost#votes"}
	err := bad.validate(1 << 20)
	if !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Fatal(err)
	}
	for _, want := range []string{"no command", "--readers -1", "--duration 1s", `--tls "maybe"`, "--redis: want"} {
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("want %q without the password: %v", want, err)
		}
	}
}

func TestOptions_TheLimitOfOpenFilesBoundsReaders(t *testing.T) {
	for files, want := range map[uint64]int{0: ReadersMax, 200: 0, 1024: 286, 20_000: 7876, 1 << 20: ReadersMax} {
		if got := readersFor(files); got != want {
			t.Errorf("%d files: %d readers, want %d", files, got, want)
		}
	}
	o := Default()
	o.Command, o.Readers = []string{"isotone"}, 300
	if err := o.validate(1024); err == nil || !strings.Contains(err.Error(), "--readers 300: the limit of 1024 open files (ulimit -n) allows a node 286 readers") {
		t.Error(err)
	}
}

func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics(strings.NewReader("# HELP x y\nprocess_cpu_seconds_total 1.5\n" +
		"isotone_live_loads_total{code=\"ok\",document=\"votes\"} 3\nisotone_live_loads_total{code=\"unchanged\",document=\"votes\"} 4\n" +
		"isotone_live_loads_total{code=\"ok\",document=\"state\"} 100\nisotone_live_streams{document=\"votes\"} 12\nisotone_live_streams{document=\"state\"} 9\n"))
	if err != nil || got.cpu != 1.5 || got.loads != 7 || got.streams != 12 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := parseMetrics(strings.NewReader("isotone_live_streams 1\n")); err == nil {
		t.Error("without processor time: no error")
	}
}

// sample returns a run of two phases.
func sample() *Result {
	r := &Result{Head: bench.NewHead(Schema, time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), 2)}
	r.Settings.Connections, r.Settings.Source, r.Settings.Bytes = 5000, "file", 4096
	r.Result.Phases = []Phase{
		{Readers: 5000, Seconds: 10, Documents: 10, Events: 50_000, EventsPerS: 5000, Loads: 10, CPU: 10, CPUEach: 20, FirstMS: 100, LastMS: 140, WorstMS: 150},
		{TLS: true, Readers: 5000, Seconds: 10, Documents: 10, Events: 49_995, EventsPerS: 4999.5, Loads: 10, CPU: 15, CPUEach: 30, FirstMS: 100, LastMS: 160, WorstMS: 200, PassedOver: 5},
	}
	r.Result.Phases[0].Connect.CPUEach, r.Result.Phases[1].Connect.CPUEach = 100, 500
	for at := range 22 {
		if at%11 > 0 {
			r.Result.Seconds = append(r.Result.Seconds, Second{AtS: float64(at), TLS: at > 11, Version: at, Events: 5000, Loads: 1, FirstMS: 100, LastMS: 140, CPU: 10})
		}
	}
	r.Verdict.OK, r.Verdict.Checked = true, 109_995
	return r
}

func TestResult_SummaryAndPictureSayWhatTLSCosts(t *testing.T) {
	summary, picture := sample().Summary(), sample().Picture()
	for _, want := range []string{"1.5 times the processor time for an event, 5.0 times for a connection", "TLS: 5 events, because there was a newer document", "verdict    ok"} {
		if !strings.Contains(summary, want) {
			t.Errorf("want %q:\n%s", want, summary)
		}
	}
	for _, want := range []string{">20.0 ms<", ">30.0 ms<", "from the first reader to the last: 60 ms"} {
		if !strings.Contains(picture, want) {
			t.Errorf("want %q:\n%s", want, picture)
		}
	}
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains((&Result{}).Picture(), "NaN") {
		t.Error("a run without phases has no picture")
	}
}

func TestScreen_DrawsAgainOnATerminalOnly(t *testing.T) {
	c := newCount(10, 1)
	if _, err := c.next(time.Now()); err != nil {
		t.Fatal(err)
	}
	var plain, terminal bytes.Buffer
	for _, s := range []*Screen{{W: &plain}, {W: &terminal, Terminal: true, Color: true}} {
		s.Show(Now{Readers: 10, Connected: 3, Votes: c.votes})
		s.Show(Now{Readers: 10, Connected: 10, Votes: c.votes})
		s.Show(Now{TLS: true, Readers: 10, Votes: c.votes, Second: &Second{AtS: 4, TLS: true, Events: 10, Loads: 1, FirstMS: 1, LastMS: 2}})
		s.End()
	}
	if text := plain.String(); strings.Contains(text, "\x1b") || strings.Count(text, "\n") != 2 || !strings.Contains(text, "seen after 1 to 2 ms") {
		t.Error(text)
	}
	if text := terminal.String(); strings.Count(text, "\x1b[7A") != 2 || !strings.Contains(text, "3 of 10 readers are connected") || !strings.HasSuffix(text, "\x1b[?25h") {
		t.Errorf("%q", text)
	}
}
