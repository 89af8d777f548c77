package stats

import (
	"context"
	"log/slog"
)

// attrsMax is the most attributes of a record.
const attrsMax = 11

// Config configures a [Recorder]. All fields are optional.
type Config struct {
	// Log takes one line for each record, on the goroutine of the request; nil discards.
	Log *slog.Logger
	// Sample measures and logs one in so many requests; 0 means 1: all. The choice depends
	// only on the request ID, so all processes on the way of a request choose the same
	// ones.
	Sample int
	// Observe, if not nil, is called for each record, on the same goroutine. It must not
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

// Sampled reports whether the request with this request ID is measured.
func (r *Recorder) Sampled(id string) bool { return Sampled(id, r.cfg.Sample) }

// Sampled is [Recorder.Sampled] for this [Config.Sample].
func Sampled[T string | []byte](id T, sample int) bool {
	return sample <= 1 || mix(id)%uint64(sample) == 0
}

// mix is FNV-1a with its high bits folded into the low ones, which alone would depend only on
// the low bits of each byte. It must not change: all versions must choose the same requests.
func mix[T string | []byte](s T) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h ^= h >> 32
	return h ^ h>>16
}

// Observe records one, sampled or not: for servers without an [http.Handler].
func (r *Recorder) Observe(one Record) {
	if r.cfg.Observe != nil {
		r.cfg.Observe(&one)
	}
	ctx, handler := context.Background(), r.cfg.Log.Handler()
	if !handler.Enabled(ctx, slog.LevelInfo) {
		return
	}
	line := slog.NewRecord(one.Time, slog.LevelInfo, message, 0)
	line.AddAttrs(one.appendAttrs(make([]slog.Attr, 0, attrsMax))...)
	_ = handler.Handle(ctx, line) // like slog, which ignores errors of handlers
}
