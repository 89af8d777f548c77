package snowflake_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

var parsers = map[string]func(string) (snowflake.ID, error){
	"Parse": snowflake.Parse, "ParseBase62": snowflake.ParseBase62, "ParseHex": snowflake.ParseHex,
}

// fuzz checks that a parser accepts exactly the texts that the formatter writes.
func fuzz(f *testing.F, parse func(string) (snowflake.ID, error), write func(snowflake.ID) string) {
	for _, form := range forms {
		for _, s := range []string{form.decimal, form.base62, form.hex} {
			f.Add(s, int64(form.id))
		}
	}
	f.Fuzz(func(t *testing.T, s string, v int64) {
		id, err := parse(s)
		switch {
		case err != nil && (!errors.Is(err, isotone.ErrInvalidArgument) || id != 0):
			t.Errorf("%q: %d, %v", s, id, err)
		case err == nil && (id < 0 || write(id) != s):
			t.Errorf("%q is read as %d, which is written %q", s, int64(id), write(id))
		}
		if v < 0 {
			return
		}
		if back, err := parse(write(snowflake.ID(v))); err != nil || back != snowflake.ID(v) {
			t.Errorf("%d is written %q, which is read as %d, %v", v, write(snowflake.ID(v)), int64(back), err)
		}
	})
}

func FuzzParse(f *testing.F) { fuzz(f, snowflake.Parse, snowflake.ID.String) }

func FuzzParseBase62(f *testing.F) { fuzz(f, snowflake.ParseBase62, snowflake.ID.Base62) }

func FuzzParseHex(f *testing.F) { fuzz(f, snowflake.ParseHex, snowflake.ID.Hex) }

func FuzzParseLayout(f *testing.F) {
	f.Add("41/5/5/12", snowflake.Twitter.Epoch)
	f.Add("42/10/11", int64(0))
	f.Add("63/0/0", int64(0))
	f.Add("041/5/5/12", int64(-1))
	f.Add("255/255/255/1", int64(1)<<62)
	f.Fuzz(func(t *testing.T, s string, epoch int64) {
		l, err := snowflake.ParseLayout(s, epoch)
		if err != nil {
			if !errors.Is(err, isotone.ErrInvalidArgument) || l != (snowflake.Layout{}) {
				t.Errorf("%q: %+v, %v", s, l, err)
			}
			return
		}
		if err := l.Validate(); err != nil {
			t.Errorf("%q is read as a layout with faults: %v", s, err)
		}
		if back, err := snowflake.ParseLayout(l.String(), epoch); err != nil || back != l {
			t.Errorf("%q is written %q, which is read as %+v, %v", s, l, back, err)
		}
		if l.FirstMillis() != epoch || l.LastMillis() < epoch {
			t.Errorf("%q: milliseconds %d to %d", s, l.FirstMillis(), l.LastMillis())
		}
	})
}

// FuzzUnmarshalJSON: valid JSON is decoded with encoding/json, encoded, and decoded again.
func FuzzUnmarshalJSON(f *testing.F) {
	for _, s := range []string{`"123"`, `123`, `null`, `"`, `""`, `1e3`, `-0`, `"9223372036854775808"`, "\"\\u0031\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var direct snowflake.ID
		_ = direct.UnmarshalJSON(b) // must not panic, whatever b is
		var id snowflake.ID
		if json.Unmarshal(b, &id) != nil {
			return
		}
		if id < 0 {
			t.Fatalf("%q is read as %d", b, int64(id))
		}
		written, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		var back snowflake.ID
		if err := json.Unmarshal(written, &back); err != nil || back != id {
			t.Errorf("%q, %s: %d, %v", b, written, back, err)
		}
	})
}
