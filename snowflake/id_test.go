package snowflake_test

import (
	"database/sql"
	"database/sql/driver"
	"encoding"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

var (
	_ json.Marshaler           = snowflake.ID(0)
	_ json.Unmarshaler         = (*snowflake.ID)(nil)
	_ encoding.TextMarshaler   = snowflake.ID(0)
	_ encoding.TextAppender    = snowflake.ID(0)
	_ encoding.TextUnmarshaler = (*snowflake.ID)(nil)
	_ driver.Valuer            = snowflake.ID(0)
	_ sql.Scanner              = (*snowflake.ID)(nil)
)

// forms are IDs in every text form.
var forms = []struct {
	id                   snowflake.ID
	decimal, base62, hex string
}{
	{0, "0", "0", "0000000000000000"},
	{9, "9", "9", "0000000000000009"},
	{10, "10", "A", "000000000000000a"},
	{35, "35", "Z", "0000000000000023"},
	{36, "36", "a", "0000000000000024"},
	{61, "61", "z", "000000000000003d"},
	{62, "62", "10", "000000000000003e"},
	{3843, "3843", "zz", "0000000000000f03"},
	{1 << 53, "9007199254740992", "fFgnDxSe8", "0020000000000000"},
	{1541815603606036480, "1541815603606036480", "1ptWyK4WgZU", "1565a11f6217a000"},
	{math.MaxInt64, "9223372036854775807", "AzL8n0Y58m7", "7fffffffffffffff"},
}

func TestID_WritesAndReadsEveryForm(t *testing.T) {
	for _, f := range forms {
		if got := f.id.String(); got != f.decimal {
			t.Errorf("%d: decimal %s, want %s", int64(f.id), got, f.decimal)
		}
		if got := f.id.Base62(); got != f.base62 {
			t.Errorf("%d: base 62 %s, want %s", int64(f.id), got, f.base62)
		}
		if got := f.id.Hex(); got != f.hex {
			t.Errorf("%d: hex %s, want %s", int64(f.id), got, f.hex)
		}
		if got := string(f.id.AppendDecimal([]byte("id="))); got != "id="+f.decimal {
			t.Errorf("%d: appended %s", int64(f.id), got)
		}
		for name, read := range map[string]func() (snowflake.ID, error){
			"Parse":       func() (snowflake.ID, error) { return snowflake.Parse(f.decimal) },
			"ParseBase62": func() (snowflake.ID, error) { return snowflake.ParseBase62(f.base62) },
			"ParseHex":    func() (snowflake.ID, error) { return snowflake.ParseHex(f.hex) },
		} {
			if got, err := read(); err != nil || got != f.id {
				t.Errorf("%s: %d, %v, want %d", name, got, err, f.id)
			}
		}
	}
}

func TestParse_RefusesAllElse(t *testing.T) {
	every := []string{"", " ", "-1", "+1", " 1", "1 ", "1\n", "_1", "1_0", "1.0", "é", "\x00", "0x1", "1/", "1:", "1@", "1[", "1`", "1{"}
	for name, c := range map[string]struct {
		parse func(string) (snowflake.ID, error)
		bad   []string
	}{
		"Parse":       {snowflake.Parse, []string{"a", "00", "01", "9223372036854775808", "9999999999999999999", "10000000000000000000", "18446744073709551616"}},
		"ParseBase62": {snowflake.ParseBase62, []string{"00", "0a", "AzL8n0Y58m8", "zzzzzzzzzzz", "100000000000"}},
		"ParseHex":    {snowflake.ParseHex, []string{"0", "000000000000000", "00000000000000000", "000000000000000A", "8000000000000000", "ffffffffffffffff", "000000000000000g", "-000000000000001"}},
	} {
		for _, s := range append(c.bad, every...) {
			if id, err := c.parse(s); !errors.Is(err, isotone.ErrInvalidArgument) || id != 0 {
				t.Errorf("%s(%q) = %d, %v", name, s, id, err)
			}
		}
	}
}

func TestParse_DoesNotRepeatLongInput(t *testing.T) {
	long := strings.Repeat("1", 1<<20)
	for name, parse := range parsers {
		if _, err := parse(long); err == nil || len(err.Error()) > 200 {
			t.Errorf("%s: no error, or a long one", name)
		}
	}
}

func TestID_JSON(t *testing.T) {
	type row struct {
		ID  snowflake.ID            `json:"id"`
		Map map[snowflake.ID]string `json:"map,omitempty"`
	}
	written, err := json.Marshal(row{ID: math.MaxInt64, Map: map[snowflake.ID]string{7: "seven"}})
	if want := `{"id":"9223372036854775807","map":{"7":"seven"}}`; err != nil || string(written) != want {
		t.Fatalf("%s, %v, want %s", written, err, want)
	}
	var read row
	if err := json.Unmarshal(written, &read); err != nil || read.ID != math.MaxInt64 || read.Map[7] != "seven" {
		t.Errorf("%+v, %v", read, err)
	}
	for text, want := range map[string]snowflake.ID{
		`{"id":9223372036854775807}`: math.MaxInt64, `{"id":"42"}`: 42, `{"id":0}`: 0, `{"id":null}`: 5, `{}`: 5,
	} {
		read := row{ID: 5}
		if err := json.Unmarshal([]byte(text), &read); err != nil || read.ID != want {
			t.Errorf("%s: %d, %v, want %d", text, read.ID, err, want)
		}
	}
	for _, text := range []string{`-1`, `"-1"`, `1.0`, `1e3`, `""`, `"`, `" 1"`, `true`, `{}`, `[1]`, `9223372036854775808`, `"01"`} {
		id := snowflake.ID(5)
		if err := id.UnmarshalJSON([]byte(text)); !errors.Is(err, isotone.ErrInvalidArgument) || id != 5 {
			t.Errorf("%s: %d, %v", text, id, err)
		}
	}
}

func TestID_SQL(t *testing.T) {
	if v, err := snowflake.ID(42).Value(); err != nil || v != int64(42) {
		t.Errorf("Value = %#v, %v", v, err)
	}
	for _, src := range []any{int64(42), "42", []byte("42")} {
		var id snowflake.ID
		if err := id.Scan(src); err != nil || id != 42 {
			t.Errorf("Scan(%#v): %d, %v", src, id, err)
		}
	}
	for _, src := range []any{nil, int64(-1), "-1", []byte("x"), "", 42.0, true, int(42)} {
		id := snowflake.ID(5)
		if err := id.Scan(src); !errors.Is(err, isotone.ErrInvalidArgument) || id != 5 {
			t.Errorf("Scan(%#v): %d, %v", src, id, err)
		}
	}
	var null sql.Null[snowflake.ID]
	if err := null.Scan(nil); err != nil || null.Valid {
		t.Errorf("a NULL: %+v, %v", null, err)
	}
}

func TestID_NegativeIsNotEncoded(t *testing.T) {
	const id = snowflake.ID(-1)
	if _, err := id.MarshalText(); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Error("MarshalText:", err)
	}
	if _, err := id.MarshalJSON(); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Error("MarshalJSON:", err)
	}
	if _, err := id.Value(); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Error("Value:", err)
	}
	for name, s := range map[string]string{"Parse": id.String(), "ParseBase62": id.Base62(), "ParseHex": id.Hex()} {
		if _, err := parsers[name](s); err == nil {
			t.Errorf("%s reads %s", name, s)
		}
	}
}
