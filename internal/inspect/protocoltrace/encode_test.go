package protocoltrace

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/isotone/isotone/spec"
)

// filled sets all fields of v, and those of what it consists of.
func filled(v reflect.Value) {
	switch v.Kind() {
	case reflect.Uint64:
		v.SetUint(math.MaxUint64)
	case reflect.Int64:
		v.SetInt(math.MinInt64)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("a")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		filled(v.Index(0))
		filled(v.Index(1))
	case reflect.Struct:
		for i := range v.NumField() {
			filled(v.Field(i))
		}
	default:
		panic("there is a field of a new kind: " + v.Type().String())
	}
}

// TestAppendEvent_IsJSON: with each field by itself, with all, and with none, it is what json.Marshal makes of it.
func TestAppendEvent_IsJSON(t *testing.T) {
	events := []spec.Event{{}, {Kind: spec.Answer, Timeline: "a\"<\x01ü"}}
	for i := range reflect.TypeFor[spec.Event]().NumField() {
		var e spec.Event
		filled(reflect.ValueOf(&e).Elem().Field(i))
		events = append(events, e)
	}
	var all spec.Event
	filled(reflect.ValueOf(&all).Elem())
	for _, e := range append(events, all) {
		want, err := json.Marshal(&e)
		if got := appendEvent(nil, &e); err != nil || string(got) != string(want) {
			t.Errorf("%s\nwant %s, %v", got, want, err)
		}
	}
}

func BenchmarkAppendEvent(b *testing.B) {
	at := spec.Timestamp{Time: 1_800_000_000_000_000_000, Index: 17}
	e := spec.Event{Kind: spec.Answer, Node: 1, Process: 1 << 60, Token: 123_456, Ranges: []spec.Range{{First: at, Last: at}}}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = appendEvent(buf[:0], &e)
	}
}
