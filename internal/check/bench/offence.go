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

// offencesMax bounds the violations in the file. All are counted.
const offencesMax = 1000

// offences writes violations to a file, one JSON object a line.
type offences struct {
	mu      sync.Mutex
	name    string   // of the file
	file    *os.File // nil until the first violation
	written int
	first   string
	err     error
}

// Offence is one line of the file of violations.
type Offence struct {
	// Kind is "duplicate", "inversion" or "malformed"; Message has the details.
	Kind    string `json:"kind"`
	Message string `json:"message"`
	// Later is the operation that was found to be wrong.
	Later OffendingOperation `json:"later"`
	// Earlier is the operation that it contradicts: one that had completed before it began
	// (inversion), or that got some of the same timestamps (duplicate). Only recent
	// operations are remembered; of an older one it has only the timestamps in question.
	Earlier *OffendingOperation `json:"earlier,omitempty"`
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
	o := Offence{Kind: v.Kind.String(), Message: v.Error(), Later: describe(op)}
	o.Later.Node = node
	if v.Kind != lincheck.Malformed {
		earlier := OffendingOperation{First: v.Earlier.Range.First.String(), Count: v.Earlier.Range.Count}
		if op, ok := r.find(v.Earlier.Range, op); ok {
			earlier = describe(op)
		}
		o.Earlier = &earlier
	}
	r.offences.add(o)
}

func (r *run) find(issued isotone.Range, other operation) (operation, bool) {
	for _, s := range r.shards {
		if op, ok := s.find(issued, other); ok {
			return op, true
		}
	}
	return operation{}, false
}

func describe(op operation) OffendingOperation {
	return OffendingOperation{
		Caller: &op.caller, Sent: seconds(op.sent), Answered: seconds(op.answered),
		First: op.issued.First.String(), Count: op.issued.Count,
	}
}

// add writes a violation to the file, unless it has offencesMax already.
func (o *offences) add(offence Offence) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first == "" {
		o.first = offence.Message
	}
	if o.err != nil || o.written == offencesMax {
		return
	}
	if o.file == nil {
		if o.file, o.err = os.Create(o.name); o.err != nil {
			return
		}
	}
	o.err = json.NewEncoder(o.file).Encode(offence)
	o.written++
}

// close closes the file, and returns the first error in writing it.
func (o *offences) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.err
	if o.file != nil {
		err = errors.Join(err, o.file.Close())
	}
	if err != nil {
		return fmt.Errorf("write violations: %w; the first was: %s", err, o.first)
	}
	return nil
}
