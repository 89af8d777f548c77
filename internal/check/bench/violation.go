package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
)

// violationsMax bounds the violations in the file. All are counted.
const violationsMax = 1000

// Violations writes violations to a file, one JSON object a line. Only Name is set by the caller. The methods
// are for all goroutines.
type Violations struct {
	Name string

	mu      sync.Mutex
	file    *os.File // nil until the first violation
	written int
	first   string
	err     error
}

// Violation is a broken promise, and the records that prove it: one line of the file of violations.
type Violation struct {
	// Kind is "duplicate", "inversion", "malformed" or another; Message has the details.
	Kind    string `json:"kind"`
	Message string `json:"message"`
	// Later is what was found to be wrong, Earlier what it contradicts; nil if the other is proof enough.
	// Here they are *[OffendingOperation]. The earlier one had completed before the later one began
	// (inversion), or got some of the same timestamps (duplicate). Only recent operations are remembered;
	// of an older one it has only the timestamps in question.
	Later   any `json:"later"`
	Earlier any `json:"earlier,omitempty"`
}

// OffendingOperation is one request and its answer. Times count from the beginning of
// the run, callers from 0.
type OffendingOperation struct {
	Caller   *int    `json:"lane,omitempty"`
	Node     string  `json:"node,omitempty"`
	Sent     Seconds `json:"sent_s,omitempty"`
	Answered Seconds `json:"answered_s,omitempty"`
	First    string  `json:"first"` // 32 hexadecimal digits
	Count    uint64  `json:"count"`
}

// offended records a violation that the checker found in an operation.
func (r *run) offended(err error, op operation, node string) {
	var v *lincheck.Violation
	if !errors.As(err, &v) {
		panic("bench: the checker reported an error that is not a violation: " + err.Error())
	}
	later := describe(op)
	later.Node = node
	o := Violation{Kind: v.Kind.String(), Message: v.Error(), Later: later}
	if v.Kind != lincheck.Malformed {
		o.Earlier = &OffendingOperation{First: v.Earlier.Range.First.String(), Count: v.Earlier.Range.Count}
		if op, ok := r.find(v.Earlier.Range, op); ok {
			o.Earlier = describe(op)
		}
	}
	r.violations.Add(o)
}

func (r *run) find(issued isotone.Range, other operation) (operation, bool) {
	for _, s := range r.shards {
		if op, ok := s.find(issued, other); ok {
			return op, true
		}
	}
	return operation{}, false
}

func describe(op operation) *OffendingOperation {
	return &OffendingOperation{
		Caller: &op.caller, Sent: seconds(op.sent), Answered: seconds(op.answered),
		First: op.issued.First.String(), Count: op.issued.Count,
	}
}

// Add writes a violation to the file, unless it has violationsMax already.
func (v *Violations) Add(found Violation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.first == "" {
		v.first = found.Message
	}
	if v.err != nil || v.written == violationsMax {
		return
	}
	if v.file == nil {
		if v.file, v.err = os.Create(v.Name); v.err != nil {
			return
		}
	}
	v.err = json.NewEncoder(v.file).Encode(found)
	v.written++
}

// Close closes the file, and returns the first error in writing it.
func (v *Violations) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	err := v.err
	if v.file != nil {
		err = errors.Join(err, v.file.Close())
	}
	if err != nil {
		return fmt.Errorf("write violations: %w; the first was: %s", err, v.first)
	}
	return nil
}
