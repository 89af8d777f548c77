package demoscale

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestScale_TellsAllActs in short. How many answers a run has depends on the machine.
func TestScale_TellsAllActs(t *testing.T) {
	threads := runtime.GOMAXPROCS(0)
	var shown strings.Builder
	o := ScaleDefault()
	o.Duration, o.Sleep = 4*time.Second, 5*time.Millisecond
	o.Show = func(text string) { shown.WriteString(text) }
	r, err := Scale(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Verdict.OK || r.Interrupted || r.Verdict.Checked == 0 || len(r.Acts) != ActsMax {
		t.Errorf("%+v, %d acts", r.Verdict, len(r.Acts))
	}
	if got := runtime.GOMAXPROCS(0); got != threads {
		t.Errorf("GOMAXPROCS is %d, was %d", got, threads)
	}
	for i, act := range r.Acts {
		if want := []int{2, 1, len(coreWorkers), 3, 7}[i]; act.Number != i+1 || len(act.Runs) != want || len(act.Says) == 0 {
			t.Errorf("%+v: want act %d with %d runs, and what follows", act, i+1, want)
		}
		for _, m := range act.Runs {
			if (m.Rate > 0) != (m.Answers > 0) || m.Workers == 0 || m.Clients == 0 || (m.Model != nil) != (act.Number == 4) {
				t.Errorf("act %d: %+v", act.Number, m)
			}
			if runtime.GOOS == "linux" && m.Log != nil && (m.Log.CPU <= 0 || m.Log.Wall < m.Log.CPU || m.Log.WorkersPerCore < 1) {
				t.Errorf("act %d, %s: %+v", act.Number, m.Name, m.Log)
			}
			if m.Log != nil && act.Number != 2 && act.Number != 3 {
				t.Errorf("act %d has a request log", act.Number)
			}
		}
		if !strings.Contains(shown.String(), act.Title) || !strings.Contains(r.Picture(), act.Title) {
			t.Errorf("act %d is not shown", act.Number)
		}
	}
	for d := xml.NewDecoder(strings.NewReader(r.Picture())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, r.Picture())
		}
	}
}

// TestScale_TheActsThatRunShareTheDuration, whichever they are. Without one, each is as long as in a run of all.
func TestScale_TheActsThatRunShareTheDuration(t *testing.T) {
	length := func(duration time.Duration, acts ...int) (sum time.Duration) {
		o := ScaleDefault()
		o.Duration = duration
		if acts != nil {
			o.Acts = acts
		}
		for _, act := range o.Acts {
			for _, p := range o.plan(act) {
				sum += p.length()
			}
		}
		return sum.Round(10 * time.Millisecond)
	}
	all, own := length(time.Minute), time.Duration(0)
	if all > time.Minute || all < 50*time.Second {
		t.Errorf("all acts take %v of a minute", all)
	}
	for act := 1; act <= ActsMax; act++ {
		if alone := length(time.Minute, act); alone != all {
			t.Errorf("act %d alone takes %v of a minute, all acts %v", act, alone, all)
		}
		own += length(0, act)
	}
	if want := length(0); own != want || want != length(3*time.Minute) {
		t.Errorf("one by one the acts take %v, all at once %v", own, want)
	}
}

func TestScale_InterruptedReturnsWhatThereIs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := ScaleDefault()
	o.Sleep = 5 * time.Millisecond
	o.Progress = func(line string) {
		if strings.Contains(line, "act 1, run 2") {
			cancel()
		}
	}
	r, err := Scale(ctx, o)
	if err != nil || !r.Interrupted || !r.Verdict.OK || len(r.Acts) != 1 || len(r.Acts[0].Runs) != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestScale_AWrongAnswerIsTheVerdict(t *testing.T) {
	wrong := errors.New("word-1 is answered with nonsense")
	var r ScaleResult
	if err := r.judge(wrong, false); !errors.Is(err, wrong) || r.Verdict.OK || r.Verdict.First != wrong.Error() {
		t.Errorf("%v, %+v", err, r.Verdict)
	}
}

func TestConcludeCore_NamesOptimumAndPrediction(t *testing.T) {
	var runs []Measured
	for i, rate := range []float64{30, 59, 118, 215, 225, 220} {
		runs = append(runs, Measured{Workers: coreWorkers[i], Rate: rate, Log: &Logged{Wall: 0.035, CPU: 0.005, WorkersPerCore: float64(7 + i)}})
	}
	says := strings.Join(concludeCore(runs), "\n")
	for _, want := range []string{"8 workers per core", "35 ms / 5.0 ms = 7.0", "With 8 workers the rate is 96 % of the best", "From the log of 32 workers it would be 12.0"} {
		if !strings.Contains(says, want) {
			t.Errorf("%q is missing in:\n%s", want, says)
		}
	}
	if strings.Contains(says, "Other programs") {
		t.Errorf("the core was busy with requests:\n%s", says)
	}
	for i := range runs {
		runs[i].Rate /= 2
	}
	if says := strings.Join(concludeCore(runs), "\n"); !strings.Contains(says, "only 56 % of a core") {
		t.Errorf("the core was half idle:\n%s", says)
	}
	if got := optimum([]Measured{{Workers: 1}}); got != 0 {
		t.Errorf("without answers: %d", got)
	}
}

// TestCompare_ComputesFromTheRun: other figures of a run make other sentences, and what was not
// measured is left out.
func TestCompare_ComputesFromTheRun(t *testing.T) {
	of := func(name string, rate, hits float64) Measured {
		return Measured{Name: name, Workers: 10, Clients: 10, Rate: rate, HitRate: hits, Answers: 100}
	}
	r := ScaleResult{Acts: []Act{{Number: ActsMax, Runs: []Measured{of("random", 5, 0), of("least-busy", 10, 0), of("random+cache", 6, 0.1), of("least-busy+cache", 11, 0.3)}}}}
	r.compare()
	text := r.comparison()
	for _, want := range []string{
		"a request takes 2.0 s here, 2.5 s in the talk", "50 % of least-busy here, 50 % in the talk", "53 % of k workers", "20.0 %", "20-30 %",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if len(r.Talk) != 3 || strings.Contains(text, "sticky") || strings.Contains(text, "round-robin") {
		t.Errorf("%d figures:\n%s", len(r.Talk), text)
	}
}
