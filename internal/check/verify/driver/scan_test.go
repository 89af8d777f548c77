package driver

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// FuzzScanAnswer looks for lines of which encoding/json makes something else.
func FuzzScanAnswer(f *testing.F) {
	call := `{"first":"340282366920938463463374607431768211455","count":18446744073709551615,"began":9223372036854775807,"ended":5}`
	for _, line := range []string{
		`{"id":1,"ok":{"calls":[` + call + `]}}`,
		`{"id":1,"ok":{"calls":[` + call + "," + strings.Replace(call, "34", "0", 1) + `]}}`,
		`{"id":18446744073709551616,"ok":{"calls":[` + call + `]}}`,
		`{"id":1,"ok":{"calls":[` + call + `,]}}`, `{"id":1,"ok":{"calls":[` + call + `]}}}`, `{"id":1,"ok":{"calls":[]}}`,
		`{"id":01,"ok":{"calls":[` + call + `]}}`, `{"id":1,"ok":{"calls":[` + call + call + `]}}`, `{"id":1,"ok":{"calls":[`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		scanned, ok := scanAnswer(line)
		if !ok {
			return
		}
		var r Response
		var a Answer
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(r.OK, &a); err != nil {
			t.Fatal(err)
		}
		if r.ID != scanned.ID || !reflect.DeepEqual(a.Calls, scanned.calls) || a.Failed != nil || r.Error != "" {
			t.Errorf("%q: %+v: want %d, %+v", line, scanned, r.ID, a)
		}
	})
}

func TestScanAnswer_ItTakesWhatServeWrites(t *testing.T) {
	line := `{"id":7,"ok":{"calls":[{"first":"21","count":3,"began":5,"ended":6},{"first":"24","count":3,"began":7,"ended":7}]}}`
	r, ok := scanAnswer([]byte(line))
	want := []Call{{First: "21", Count: 3, Began: 5, Ended: 6}, {First: "24", Count: 3, Began: 7, Ended: 7}}
	if !ok || r.ID != 7 || !reflect.DeepEqual(r.calls, want) {
		t.Errorf("%v, %+v: want %+v", ok, r, want)
	}
}
