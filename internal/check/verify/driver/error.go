package driver

import (
	"errors"
	"fmt"
	"io"
	"net"
)

// Error is what a driver answers in place of a result. Any other error of a [Process] is a fault of the driver, or
// the end of a context.
type Error struct {
	Kind    string // Unavailable, Malformed or Invalid
	Message string
}

// Error returns the kind and the message.
func (e *Error) Error() string { return e.Kind + ": " + e.Message }

// Errorf returns an [Error].
func Errorf(kind, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// failure returns an error as an [Error], one of a connection in words that are the same each time, so that failures can be counted:
// those of package net have the port of the connection.
func failure(err error) *Error {
	var known *Error
	var late net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &late) && late.Timeout():
		return &Error{Unavailable, "no answer in time"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Unavailable, "the node has closed the connection"}
	case errors.As(err, &op):
		return &Error{Unavailable, op.Op + ": " + op.Err.Error()}
	}
	return &Error{Unavailable, err.Error()}
}
