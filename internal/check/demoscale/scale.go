package demoscale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/bench"
	"github.com/isotone/isotone/internal/front/stats"
)

// ScaleSchema identifies the JSON format of a [ScaleResult].
const ScaleSchema = "isotone-demo-scale/1"

// Limits of [ScaleOptions]: shorter runs have no answers, longer ones tell nothing new.
const (
	scaleDurationMin = 2 * time.Second
	scaleDurationMax = 30 * time.Minute
	scaleSleepMin    = time.Millisecond
	scaleSleepMax    = 10 * time.Second
)

// ScaleOptions configures [Scale].
type ScaleOptions struct {
	Version string
	Acts    []int         // those to run, 1 to [ActsMax], in this order
	Sleep   time.Duration // of a request in the last act, on average; in others it is shorter in proportion
	// Duration is how long the acts that run take together, about. Zero means as long as the script says.
	Duration time.Duration
	// Show, if not nil, is called with the text of each act and of the comparison, Progress with a line before each run.
	Show, Progress func(text string)
}

// ScaleDefault returns the options of a run of all acts, by the script.
func ScaleDefault() ScaleOptions {
	return ScaleOptions{Acts: []int{1, 2, 3, 4, 5}, Sleep: time.Second}
}

// Validate returns an error that lists all faults and matches isotone.ErrInvalidArgument.
func (o *ScaleOptions) Validate() error {
	var faults []error
	if o.Duration != 0 {
		faults = append(faults, within("duration", o.Duration, scaleDurationMin, scaleDurationMax))
	}
	faults = append(faults, within("sleep", o.Sleep, scaleSleepMin, scaleSleepMax))
	for i, act := range o.Acts {
		faults = append(faults, within("act", act, 1, ActsMax))
		if slices.Contains(o.Acts[:i], act) {
			faults = append(faults, fmt.Errorf("--act %d: named twice", act))
		}
	}
	if len(o.Acts) == 0 {
		faults = append(faults, errors.New("--act: want at least one"))
	}
	if err := errors.Join(faults...); err != nil {
		return isotone.Errorf(isotone.CodeInvalidArgument, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// ScaleResult is what [Scale] measured.
type ScaleResult struct {
	bench.Head
	Settings ScaleSettings `json:"settings"`
	Acts     []Act         `json:"acts"`
	// Talk compares the last act with the talk.
	Talk        []Compared   `json:"talk"`
	Interrupted bool         `json:"interrupted"`
	Verdict     ScaleVerdict `json:"verdict"`
}

// ScaleSettings are the options of the run.
type ScaleSettings struct {
	Acts     []int         `json:"acts"`
	Duration bench.Seconds `json:"duration_s"`
	Sleep    bench.Seconds `json:"sleep_s"`
}

// ScaleVerdict says whether all answers were right.
type ScaleVerdict struct {
	bench.Judgement
	Checked int `json:"checked"` // answers that were measured
}

// Act is one part of the story.
type Act struct {
	Number int        `json:"act"`
	Title  string     `json:"title"`
	About  string     `json:"about"`
	Runs   []Measured `json:"runs"`
	// Says is what follows from the figures.
	Says []string `json:"says"`
}

// Measured is one run of an act.
type Measured struct {
	Name       string  `json:"name"`
	Workers    int     `json:"workers"`
	Clients    int     `json:"clients"`
	Cache      int     `json:"cache"` // answers that a worker keeps
	Rate       float64 `json:"answers_per_s"`
	P50        float64 `json:"p50_s"`
	P99        float64 `json:"p99_s"`
	HitRate    float64 `json:"hit_rate"`
	Answers    int     `json:"answers"`
	Unfinished int     `json:"unfinished"`
	// Log is what "isotone stats" computes from the request log, if there is one.
	Log *Logged `json:"log,omitempty"`
	// Model is the rest of a run of a model, in which a worker dies.
	Model *Death `json:"one_dead,omitempty"`
}

// Logged are means of a request log.
type Logged struct {
	Requests       uint64  `json:"requests"`
	Wall           float64 `json:"wall_s"`
	CPU            float64 `json:"cpu_s"`
	WorkersPerCore float64 `json:"workers_per_core"`
}

// Death is what clients see of the death of a worker.
type Death struct {
	Rate   float64 `json:"answers_per_s"`
	Errors int     `json:"errors"`
}

// Scale runs acts and returns what they measured. If ctx is done, that is what was measured until then.
// An error beside a result means that the run failed after these acts, or an answer was wrong. It sets GOMAXPROCS to 1 for the
// acts about one core.
func Scale(ctx context.Context, o ScaleOptions) (*ScaleResult, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := &ScaleResult{
		Head:     bench.NewHead(ScaleSchema, time.Now(), runtime.GOMAXPROCS(0)),
		Settings: ScaleSettings{o.Acts, bench.Seconds(o.lasting().Seconds()), bench.Seconds(o.Sleep.Seconds())},
		Acts:     []Act{}, Talk: []Compared{}, Verdict: ScaleVerdict{Judgement: bench.Judgement{OK: true}},
	}
	r.Isotone = o.Version
	var left time.Duration
	for _, number := range o.Acts {
		for _, p := range o.plan(number) {
			left += p.length()
		}
	}
	var err error
	for _, number := range o.Acts {
		if err = r.play(ctx, o, number, &left); err != nil {
			break
		}
	}
	err = r.judge(err, ctx.Err() != nil)
	if r.compare(); len(r.Talk) > 0 {
		o.show(r.comparison())
	}
	return r, err
}

// judge notes how the run ended. An error after an interruption is only that of the interruption.
func (r *ScaleResult) judge(err error, interrupted bool) error {
	if r.Interrupted = interrupted; interrupted || err == nil {
		return nil
	}
	r.Verdict.Judgement = bench.Judgement{Violations: 1, First: err.Error()}
	return err
}

// play runs one act, and adds what was measured, even if a run failed. left is the time for all runs to come.
func (r *ScaleResult) play(ctx context.Context, o ScaleOptions, number int, left *time.Duration) (err error) {
	act := Act{Number: number, Title: acts[number-1].title, About: acts[number-1].about, Runs: []Measured{}}
	plan := o.plan(number)
	for i, p := range plan {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("act %d, run %d of %d: %s; %v to go", number, i+1, len(plan), p.name, left.Round(time.Second)))
		}
		var m Measured
		if m, err = p.run(ctx); err != nil {
			err = fmt.Errorf("act %d, %s: %w", number, p.name, err)
			break
		}
		act.Runs = append(act.Runs, m)
		r.Verdict.Checked += m.Answers
		*left -= p.length()
	}
	if len(act.Runs) > 0 {
		act.Says = acts[number-1].conclude(act.Runs)
		r.Acts = append(r.Acts, act)
		o.show(act.text())
	}
	return err
}

func (o *ScaleOptions) show(text string) {
	if o.Show != nil {
		o.Show(text)
	}
}

// run measures one run of an act. An error means a wrong answer, or that ctx is done.
func (p *planned) run(ctx context.Context) (Measured, error) {
	answers, err := p.answers(ctx)
	if err != nil {
		return Measured{}, err
	}
	m := Measured{Name: p.name, Workers: p.workers, Clients: p.clients, Cache: p.cache}
	if p.model != "" {
		r, err := tryModel(ctx, p.model, p.modelSettings(), answers)
		h := r.Healthy
		m.Rate, m.P50, m.P99, m.HitRate, m.Answers = h.Rate, h.P50, h.P99, h.HitRate, h.Answers
		m.Model = &Death{r.Dead.Rate, r.Dead.Errors}
		return m, err
	}
	s := p.settings
	var log bytes.Buffer
	if p.oneCore {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		s.record = stats.New(stats.Config{Log: slog.New(slog.NewJSONHandler(&log, nil))})
	}
	r, err := trial{p.name, p.strategy, s.workers}.try(ctx, s, answers)
	if err != nil {
		return m, err
	}
	m.Rate, m.P50, m.P99, m.HitRate, m.Answers, m.Unfinished = r.Rate, r.P50, r.P99, r.HitRate, r.Answers, r.Unfinished
	if p.oneCore {
		m.Log, err = evaluate(ctx, &log)
	}
	return m, err
}

// evaluate returns what "isotone stats" says of a log, or nil where the CPU time is not known.
func evaluate(ctx context.Context, log io.Reader) (*Logged, error) {
	report, err := stats.Read(ctx, []stats.Source{{Name: "worker", Reader: log}}, stats.ReadOptions{Cores: 1})
	if err != nil || report.Total.Measured == 0 {
		return nil, err
	}
	c := report.Total.Capacity
	return &Logged{report.Total.Measured, c.Wall.Seconds(), c.CPU.Seconds(), c.WorkersPerCore}, nil
}

// WriteJSON writes the result.
func (r *ScaleResult) WriteJSON(w io.Writer) error { return writeJSON(w, r) }
