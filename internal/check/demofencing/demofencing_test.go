package demofencing

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
)

func TestFenceScript_IsThatOfPackageFence(t *testing.T) {
	want, err := os.ReadFile("../../../fence/redis.lua")
	if err != nil {
		t.Fatal(err)
	}
	if fenceScript != string(want) {
		t.Error("fence.lua is not fence/redis.lua any more: copy it")
	}
}

func TestOptions_AllFaultsAreToldAtOnce(t *testing.T) {
	good := Default()
	good.Command = []string{"isotone"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	bad := Options{Rounds: 1001, TTL: time.Second + time.Microsecond}
	err := bad.Validate()
	if !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Fatal(err)
	}
	for _, want := range []string{"no command", "--rounds 1001: want 1 to 1000", "--ttl 1.000001s: want 100ms to 1m0s, in whole milliseconds"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// sample returns a round as it should be: A has a token, and B the next one.
func sample(number int, token isotone.Timestamp64) *Round {
	return &Round{Number: number, Done: true, Fenced: valueB, Plain: valueLate, Events: []Event{
		{AtS: 0.01, Holder: "A", What: Locked, Token: token, Held: true},
		{AtS: 0.02, Holder: "A", What: Wrote, Token: token, Value: valueA, Held: true},
		{AtS: 0.25, Holder: "A", What: Paused, Held: true},
		{AtS: 0.5, Holder: "B", What: Waited},
		{AtS: 1.5, Holder: "B", What: Locked, Token: token + 1, Held: true},
		{AtS: 1.6, Holder: "B", What: Wrote, Token: token + 1, Value: valueB, Held: true},
		{AtS: 1.8, Holder: "A", What: Resumed},
		{AtS: 1.9, Holder: "A", What: Wrote, Token: token, Value: valueLate, Fence: (token + 1).Timestamp().String()},
	}}
}

func TestResult_FindsWhatIsWrong(t *testing.T) {
	for want, change := range map[string]func(*Round){
		"":                       func(*Round) {},
		"accepted a write":       func(r *Round) { r.Events[7].Fence, r.Fenced = "", valueLate },
		"fenced key has":         func(r *Round) { r.Fenced = valueLate },
		"refused the holder":     func(r *Round) { r.Events[5].Fence = "f" },
		"do not grow: 6 before":  func(r *Round) { r.Events[0].Token = 6 },
		"do not grow: 6 before,": func(r *Round) { r.Events[4].Token = 10 },
	} {
		r := &Result{}
		r.add(sample(1, 5))
		second := sample(2, 10)
		change(second)
		r.add(second)
		err := r.Err()
		if r.Verdict.OK != (want == "") || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if (&Result{}).Err() == nil {
		t.Error("no round is no error")
	}
}

func TestScreen_TellsTheFirstRoundAndSumsUpTheOthers(t *testing.T) {
	var b bytes.Buffer
	s := Screen{W: &b, TTL: time.Second}
	first := sample(1, 5)
	for n := range first.Events {
		s.Show(&Round{Number: 1, Events: first.Events[:n+1]})
	}
	s.Show(first)
	s.Show(sample(2, 7))
	const want = `3 nodes, a Redis, and a lock. Holders A and B are processes; the TTL of their sessions is 1s.
Each writes to two keys: "fenced", whose fence compares the tokens of the lock, and "plain".

  0.010 s  A  holds the lock, token 5
  0.020 s  A  writes "A's first half": fenced ✓  plain ✓
  0.250 s  A  is paused (SIGSTOP) in the middle of its work, with the lock
  0.500 s  B  waits for the lock
  1.500 s  B  holds the lock, token 6: A's session has ended
  1.600 s  B  writes "B's work": fenced ✓  plain ✓
  1.800 s  A  goes on (SIGCONT), and knows of nothing
  1.900 s  A  writes "A's second half": fenced ✗ refused  plain ✓
              token 5 is below the fence, which is at B's 6

fenced     "B's work"
plain      "A's second half": B's work is lost

round 2: A's late write is refused by the fence; the plain key has "A's second half"
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestPicture_ShowsWhoseWorkIsLost: the fenced key is B's to the end, unless the fence has failed.
func TestPicture_ShowsWhoseWorkIsLost(t *testing.T) {
	for _, fenced := range []string{valueB, valueLate} {
		r, round := &Result{}, sample(1, 5)
		if round.Fenced = fenced; fenced == valueLate {
			round.Events[7].Fence = ""
		}
		r.add(round)
		got := r.Picture()
		for d := xml.NewDecoder(strings.NewReader(got)); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%v\n%s", err, got)
			}
		}
		wantLost, wantRefused := 1, 1
		if fenced == valueLate {
			wantLost, wantRefused = 2, 0
		}
		if lost, refused := strings.Count(got, "B&#39;s work is lost"), strings.Count(got, "✗ refused: token 5"); lost != wantLost || refused != wantRefused {
			t.Errorf("%d keys have lost, %d have refused; want %d and %d:\n%s", lost, refused, wantLost, wantRefused, got)
		}
	}
}

func TestHold_ReportsWhatItCannotDo(t *testing.T) {
	var out bytes.Buffer
	if err := Hold(t.Context(), strings.NewReader("{\n{\"do\":\"lock\",\"redis\":\"127.0.0.1:0\"}\n"), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "unexpected end") || !strings.Contains(lines[1], "127.0.0.1:0") {
		t.Errorf("%q", lines)
	}
}
