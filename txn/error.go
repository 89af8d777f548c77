package txn

import (
	"errors"
	"fmt"

	"github.com/isotone/isotone"
)

// Code is the reason why a transaction failed.
type Code string

// All codes. Arguments that are out of range give an error that matches isotone.ErrInvalidArgument
// instead.
const (
	// CodeConflict: another transaction has committed a write to the same key since this one
	// started. Start again.
	CodeConflict Code = "conflict"
	// CodeLocked: a key is locked by another transaction that may still commit. Start again later.
	CodeLocked Code = "locked"
	// CodeAborted: another client rolled the transaction back, because its locks had expired; or the frontier has passed
	// its commit timestamp (Options.Frontier), and the cause matches isotone.ErrFenced. Start again.
	CodeAborted Code = "aborted"
	// CodeTooOld: the safe point of garbage collection is past the start of the transaction. Start
	// again.
	CodeTooOld Code = "too_old"
	// CodeUnknown: the write that commits the transaction had no answer, and its outcome could not
	// be found out. It has committed, or never will, or its locks decide it later.
	CodeUnknown Code = "outcome_unknown"
	// CodeStore: a store failed. The transaction has no effect.
	CodeStore Code = "store"
	// CodeOracle: the oracle gave no timestamp, or one out of order. The transaction has no effect.
	CodeOracle Code = "oracle"
	// CodeDone: the transaction was committed or rolled back before, or the DB is closed.
	CodeDone Code = "done"
)

// Error says why a transaction failed. Two errors match under [errors.Is] when their codes are equal,
// so errors.Is(err, txn.ErrConflict) holds for any keys and timestamps. Every code but CodeUnknown
// and CodeDone means that the transaction has no effect.
type Error struct {
	Code Code
	// Space and Key are the row that it is about, if it is about one.
	Space string
	Key   []byte
	// Start is the start timestamp of the transaction that failed.
	Start isotone.Timestamp64
	// Other is the commit timestamp of the other transaction with CodeConflict, its start timestamp
	// with CodeLocked, the safe point with CodeTooOld, the commit timestamp of this transaction with
	// CodeUnknown, and else 0.
	Other isotone.Timestamp64
	// Err is the cause, for instance the error of a store; nil if there is none.
	Err error
}

// One sentinel for each code, for use with [errors.Is].
var (
	ErrConflict = &Error{Code: CodeConflict}
	ErrLocked   = &Error{Code: CodeLocked}
	ErrAborted  = &Error{Code: CodeAborted}
	ErrTooOld   = &Error{Code: CodeTooOld}
	ErrUnknown  = &Error{Code: CodeUnknown}
	ErrStore    = &Error{Code: CodeStore}
	ErrOracle   = &Error{Code: CodeOracle}
	ErrDone     = &Error{Code: CodeDone}
)

// Error describes the failure in one line.
func (e *Error) Error() string {
	s := "txn: " + e.describe()
	if e.Key != nil {
		s += fmt.Sprintf(", key %q of %q", e.Key, e.Space)
	}
	if e.Start != 0 {
		s += fmt.Sprintf(", transaction %v", e.Start)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) describe() string {
	switch e.Code {
	case CodeConflict:
		return fmt.Sprintf("conflict: written by a transaction that committed at %v", e.Other)
	case CodeLocked:
		return fmt.Sprintf("locked by transaction %v", e.Other)
	case CodeAborted:
		if errors.Is(e.Err, isotone.ErrFenced) {
			return "taken for dead: its commit timestamp is sealed"
		}
		return "rolled back by another client because its locks had expired"
	case CodeTooOld:
		return fmt.Sprintf("too old: the safe point is %v", e.Other)
	case CodeUnknown:
		return fmt.Sprintf("outcome unknown of the commit at %v", e.Other)
	case CodeStore:
		return "a store failed"
	case CodeOracle:
		return "no timestamp from the oracle"
	case CodeDone:
		return "the transaction has ended, or the DB is closed"
	default:
		return string(e.Code)
	}
}

// Is reports whether target is an *Error with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// IsRetryable reports whether the same work may succeed in a new transaction, and err says that this
// one had no effect because of others: a conflict, a lock, an abort, or the safe point.
func IsRetryable(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case CodeConflict, CodeLocked, CodeAborted, CodeTooOld:
		return true
	default:
		return false
	}
}

func (r ref) fail(code Code, start, other isotone.Timestamp64, err error) *Error {
	return &Error{Code: code, Space: r.space, Key: []byte(r.key), Start: start, Other: other, Err: err}
}

func invalid(format string, args ...any) error {
	return isotone.Errorf(isotone.CodeInvalidArgument, format, args...)
}
