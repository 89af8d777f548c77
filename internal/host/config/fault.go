package config

import (
	"fmt"
	"strings"
)

// Fault is one setting with a value that cannot be used.
type Fault struct {
	// Env and Flag name the setting, as in HTTP_PORT and http-port.
	Env, Flag string
	// Value is the text that was given, or the part of it that is at fault, for people: see [Redact].
	Value string
	// Want says which values are accepted.
	Want string
}

// Error returns one line: HTTP_PORT (--http-port) = "x": want ….
func (f Fault) Error() string {
	return fmt.Sprintf("%s (--%s) = %q: %s", f.Env, f.Flag, f.Value, f.Want)
}

// Faults is everything that is wrong. It is an error only when it is not empty.
type Faults []Fault

// Error returns a heading and one line for each fault.
func (f Faults) Error() string {
	var b strings.Builder
	b.WriteString("bad settings:")
	for _, fault := range f {
		b.WriteString("\n  " + fault.Error())
	}
	return b.String()
}

// Unwrap returns each fault, for [errors.As].
func (f Faults) Unwrap() []error {
	errs := make([]error, len(f))
	for i, fault := range f {
		errs[i] = fault
	}
	return errs
}

// add records a fault of the setting called flag.
func (f *Faults) add(flag, value, want string) {
	env, known := envOf[flag]
	if !known {
		panic("config: no setting is called " + flag)
	}
	*f = append(*f, Fault{Env: env, Flag: flag, Value: Redact(value), Want: want})
}
