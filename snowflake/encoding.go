package snowflake

import (
	"database/sql/driver"

	"github.com/isotone/isotone"
)

// MarshalJSON writes id as a string of decimal digits, because JavaScript rounds
// numbers beyond 2^53.
func (id ID) MarshalJSON() ([]byte, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	b := make([]byte, 1, decimalSizeMax+2)
	b[0] = '"'
	return append(id.AppendDecimal(b), '"'), nil
}

// UnmarshalJSON reads a string or a number, in decimal, as strictly as [Parse]; null
// leaves id unchanged, as is usual in encoding/json. Its errors match
// [isotone.ErrInvalidArgument].
func (id *ID) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if len(b) >= 2 && b[0] == '"' && b[len(b)-1] == '"' {
		b = b[1 : len(b)-1]
	}
	return id.UnmarshalText(b)
}

// MarshalText writes id in decimal.
func (id ID) MarshalText() ([]byte, error) {
	return id.AppendText(make([]byte, 0, decimalSizeMax))
}

// AppendText appends id in decimal. A negative id gives an error that matches
// [isotone.ErrInvalidArgument].
func (id ID) AppendText(b []byte) ([]byte, error) {
	if err := id.check(); err != nil {
		return b, err
	}
	return id.AppendDecimal(b), nil
}

// UnmarshalText reads what [Parse] reads. An error leaves id unchanged.
func (id *ID) UnmarshalText(b []byte) error {
	v, err := parse(b, "decimal", 10, decimalSizeMax)
	if err != nil {
		return err
	}
	*id = v
	return nil
}

// Value returns id as an int64, for a BIGINT column.
func (id ID) Value() (driver.Value, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	return int64(id), nil
}

// Scan reads an int64, or a string or bytes in decimal. Anything else, including
// NULL, gives an error that matches [isotone.ErrInvalidArgument] and leaves id
// unchanged; use sql.Null[ID] for a column that may be NULL.
func (id *ID) Scan(src any) error {
	switch v := src.(type) {
	case int64:
		if err := ID(v).check(); err != nil {
			return err
		}
		*id = ID(v)
		return nil
	case string:
		return id.UnmarshalText([]byte(v))
	case []byte:
		return id.UnmarshalText(v)
	}
	return isotone.Errorf(isotone.CodeInvalidArgument, "an ID cannot be read from %T", src)
}

func (id ID) check() error {
	if id < 0 {
		return isotone.Errorf(isotone.CodeInvalidArgument, "ID %d is negative", int64(id))
	}
	return nil
}
