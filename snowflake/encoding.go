package snowflake

import (
	"database/sql/driver"

	"github.com/isotone/isotone"
)

// MarshalJSON writes id as a string of decimal digits: numbers beyond 2^53 do not
// survive in JavaScript.
func (id ID) MarshalJSON() ([]byte, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	b := make([]byte, 1, decimalSizeMax+2)
	b[0] = '"'
	return append(id.AppendDecimal(b), '"'), nil
}

// UnmarshalJSON reads a string or a number, in decimal, as strictly as [Parse]
// does; null leaves id as it was, as everywhere in encoding/json. Its errors match
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

// UnmarshalText reads what [Parse] reads. After an error id is as it was.
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

// Scan reads an int64, or a string or bytes in decimal. All else, NULL too, gives
// an error that matches [isotone.ErrInvalidArgument] and leaves id as it was; use
// sql.Null[ID] for a column that may be NULL.
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
	return isotone.Errorf(isotone.CodeInvalidArgument, "an id cannot be read from %T", src)
}

func (id ID) check() error {
	if id < 0 {
		return isotone.Errorf(isotone.CodeInvalidArgument, "id %d is negative", int64(id))
	}
	return nil
}
