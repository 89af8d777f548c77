package stats

import (
	"context"
	"log/slog"
)

// attrsMax is how many attributes a record has at most.
const attrsMax = 11

// Config is what a [Recorder] is made of. All of it may be left out.
type Config struct {
	// Log takes one line for each record, on the goroutine of the request; nil discards.
	Log *slog.Logger
	// Sample is how many requests there are to one that is measured and logged; 0 means
	// 1, that is, all are. The choice follows from the transaction ID alone, so that all
	// processes that a request goes through choose the same ones.
	Sample int
	// Observe, if not nil, is called for each record, on that goroutine, too. It must not
	// block.
	Observe func(*Record)
}

// Recorder writes records to a log. Make it with [New]. All methods are safe for
// concurrent use.
type Recorder struct{ cfg Config }

// New returns a recorder.
func New(cfg Config) *Recorder {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Recorder{cfg}
}

// Sampled reports whether the request with this transaction ID is to be measured.
func (w *Recorder) Sampled(id string) bool { return Sampled(id, w.cfg.Sample) }

// Sampled is [Recorder.Sampled] of a recorder that has this [Config.Sample].
func Sampled[T string | []byte](id T, sample int) bool {
	return sample <= 1 || mix(id)%uint64(sample) == 0
}

// mix is FNV-1a, with its high bits folded into the low ones, which alone would depend on
// the low bits of the bytes only. It must stay as it is: versions of this program that
// work together choose by it.
func mix[T string | []byte](s T) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h ^= h >> 32
	return h ^ h>>16
}

// Observe takes one record, whether or not it was to be sampled. It is the way in for who
// has no [http.Handler] to be measured.
func (w *Recorder) Observe(r Record) {
	if w.cfg.Observe != nil {
		w.cfg.Observe(&r)
	}
	ctx, handler := context.Background(), w.cfg.Log.Handler()
	if !handler.Enabled(ctx, slog.LevelInfo) {
		return
	}
	line := slog.NewRecord(r.Time, slog.LevelInfo, message, 0)
	line.AddAttrs(r.appendAttrs(make([]slog.Attr, 0, attrsMax))...)
	_ = handler.Handle(ctx, line) // as slog itself has it: a log that fails is not told to anybody
}
