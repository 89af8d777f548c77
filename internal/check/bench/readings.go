package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/isotone/isotone"
	clock "github.com/isotone/isotone/internal/core/interval"
)

// This file loads a node with requests for readings of the cluster clock (docs/intervals.md).

const (
	readingNonce     = 0x697365746f6e65
	readingReplySize = len("$48\r\n") + clock.ReadingSize + len("\r\n")
)

func readingPath() string { return "/interval?nonce=" + strconv.FormatUint(readingNonce, 10) }

func readingCommand() string {
	nonce := strconv.FormatUint(readingNonce, 10)
	return fmt.Sprintf("*2\r\n$8\r\nINTERVAL\r\n$%d\r\n%s\r\n", len(nonce), nonce)
}

// tell decodes a reading.
func (r reading) tell(a *answer, body []byte) error {
	told, nonce, err := clock.Decode(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	if nonce != r.nonce {
		return fmt.Errorf("%w: the nonce is %d, want %d", errMalformed, nonce, r.nonce)
	}
	a.told = told
	return nil
}

// parseReadingRESP is the [parser] of answers to readingCommand.
func (r reading) parseReadingRESP(b []byte, a *answer) (int, error) {
	const head = "$48\r\n"
	switch {
	case len(b) > 0 && b[0] == '-':
		return parseRefusal(b, a)
	case !strings.HasPrefix(head, string(b[:min(len(b), len(head))])):
		return 0, fmt.Errorf("%w: %.40q", errMalformed, b)
	case len(b) < readingReplySize:
		return 0, nil
	case string(b[readingReplySize-2:readingReplySize]) != "\r\n":
		return 0, fmt.Errorf("%w: %.60q", errMalformed, b)
	}
	*a = answer{}
	if err := r.tell(a, b[len(head):readingReplySize-2]); err != nil {
		return 0, err
	}
	return readingReplySize, nil
}

// ClockNode returns the first of the targets, as in o.Targets, that reads the cluster clock, or is only
// waiting for a leader. A [TargetError] says why there is none.
func ClockNode(ctx context.Context, o Options) (target string, err error) {
	if err := o.Validate(); err != nil {
		return "", err
	}
	addrs, secure := o.targets()
	p := newProtocol(&o, secure)
	defer p.close()
	scheme := map[bool]string{false: "http", true: "https"}[secure]
	var failures []string
	for i, addr := range addrs {
		if err = askReading(ctx, &o, p, scheme+"://"+addr); err == nil {
			return o.Targets[i], nil
		}
		failures = append(failures, err.Error())
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return "", TargetError(strings.Join(failures, "; "))
}

// askReading returns nil if a node reads the cluster clock, or is waiting for a leader.
func askReading(ctx context.Context, o *Options, p protocol, base string) error {
	response, body, err := get(ctx, o, p, base+readingPath())
	if err != nil {
		return err
	}
	var a answer
	if response.StatusCode == http.StatusOK {
		if err := (reading{clock: true, nonce: readingNonce}).tell(&a, body); err != nil {
			return fmt.Errorf("%s: %w", base, err)
		}
		return nil
	}
	a.fail(response.StatusCode, body)
	switch isotone.Code(a.code) {
	case isotone.CodeNoLeader, isotone.CodeOverloaded, isotone.CodeClock:
		return nil
	case isotone.CodeNotFound:
		return fmt.Errorf("%s: %s; start every node of the cluster with INTERVAL_MS, for instance 100, to have a cluster clock", base, a.text)
	case isotone.CodeUnauthorized, isotone.CodeForbidden:
		return fmt.Errorf("%s: %s: name who asks with --user and --password-file, or --cert and --key", base, response.Status)
	}
	var other struct{ Error json.RawMessage }
	if json.Unmarshal(body, &other) == nil && other.Error != nil {
		return fmt.Errorf("%s: %s: %s", base, a.code, a.text)
	}
	return fmt.Errorf("%s is not an oracle with a cluster clock: GET /interval gives status %d", base, response.StatusCode)
}

// Readings is what [LoadReadings] measured.
type Readings struct {
	Elapsed     Seconds `json:"elapsed_s"`
	Answers     uint64  `json:"answers"`
	AnswersPerS float64 `json:"answers_per_s"`
	Latency     Summary `json:"latency_us"`
	Errors      Errors  `json:"errors"`
	// Violations counts the readings that were not above one that had been answered before they were
	// asked for; First describes the first of them.
	Violations uint64 `json:"violations"`
	First      string `json:"first,omitempty"`
}

// readingsRun is a load under way.
type readingsRun struct {
	options  *Options
	protocol protocol
	addr     string
	start    time.Time
	floor    atomic.Uint64 // the largest earliest bound that was answered

	mu      sync.Mutex
	result  Readings
	latency *hdrhistogram.Histogram
}

// LoadReadings asks the first target for readings of the cluster clock, in a closed loop of
// o.Connections connections with o.Pipeline requests each, for o.Duration or until ctx is done.
// The protocol is http1 or resp. It checks each answer: it must be well-formed, and its latest bound
// not below the earliest bound of any answer that had come before it was asked for. All of its
// goroutines have ended when it returns.
func LoadReadings(ctx context.Context, o Options) (*Readings, error) {
	o.readings = true
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Protocol != "http1" && o.Protocol != "resp" {
		return nil, Faults{fmt.Sprintf("--protocol %s: want http1 or resp for readings of the cluster clock", o.Protocol)}
	}
	addrs, secure := o.targets()
	r := &readingsRun{options: &o, protocol: newProtocol(&o, secure), addr: addrs[0], start: time.Now(), latency: newHistogram(digits)}
	defer r.protocol.close()
	r.result.Errors = Errors{}
	load, stop := context.WithTimeout(ctx, o.Duration)
	defer stop()
	var callers sync.WaitGroup
	for i := range o.Connections {
		callers.Go(func() { r.call(load, i) })
	}
	callers.Wait()
	took := int64(time.Since(r.start))
	r.result.Elapsed, r.result.AnswersPerS = seconds(took), perSecond(r.result.Answers, took)
	r.result.Latency = Summarize(r.latency)
	return &r.result, nil
}

// call is one connection, replaced when it fails.
func (r *readingsRun) call(ctx context.Context, id int) {
	for ctx.Err() == nil {
		dialing, cancel := context.WithTimeout(ctx, r.options.Timeout)
		c, err := r.protocol.dial(dialing, id, r.addr)
		cancel()
		if err == nil {
			err = r.converse(ctx, c)
			c.close()
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		r.failed(codeOf(err))
		select {
		case <-ctx.Done():
		case <-time.After(pauseMax):
		}
	}
}

func codeOf(err error) string {
	var refused *isotone.Error
	var network net.Error
	switch {
	case errors.As(err, &refused) && !errors.Is(err, errMalformed):
		return string(refused.Code)
	case errors.Is(err, errMalformed):
		return codeMalformed
	case errors.As(err, &network) && network.Timeout():
		return codeTimeout
	}
	return codeConnection
}

// converse sends requests and receives their answers until ctx is done. Then, and when answers take
// longer than the timeout, it gives up the connection.
func (r *readingsRun) converse(ctx context.Context, c conn) error {
	defer context.AfterFunc(ctx, c.abort)()
	late := time.AfterFunc(r.options.Timeout, c.abort)
	defer late.Stop()
	depth := r.options.Pipeline
	took := make([]int64, 0, depth)
	for ctx.Err() == nil {
		late.Reset(r.options.Timeout)
		floor, sent := r.floor.Load(), time.Now()
		if err := c.send(depth); err != nil {
			return err
		}
		var highest uint64
		took = took[:0]
		for range depth {
			var a answer
			if err := c.receive(&a); err != nil {
				return err
			}
			if a.code != "" {
				r.failed(a.code)
				continue
			}
			if a.told.Latest < floor {
				r.violated(a.told, floor)
			}
			highest = max(highest, a.told.Earliest)
			took = append(took, int64(time.Since(sent)))
			if a.last {
				break
			}
		}
		for old := r.floor.Load(); old < highest && !r.floor.CompareAndSwap(old, highest); old = r.floor.Load() {
		}
		r.answered(took)
		if len(took) == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pauseMin):
			}
		}
	}
	return nil
}

func (r *readingsRun) answered(took []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Answers += uint64(len(took))
	for _, ns := range took {
		record(r.latency, ns)
	}
}

func (r *readingsRun) failed(code string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.result.Errors[code]; !known && len(r.result.Errors) >= codesMax {
		code = "other"
	}
	r.result.Errors[code]++
}

func (r *readingsRun) violated(told clock.Reading, floor uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.result.Violations++; r.result.Violations == 1 {
		r.result.First = fmt.Sprintf("%s told that the cluster clock of term %d was at most at %d, after an answer that it had reached %d",
			r.addr, told.Term, told.Latest, min(floor, math.MaxInt64))
	}
}
