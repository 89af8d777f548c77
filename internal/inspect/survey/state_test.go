package survey_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/inspect/survey"
)

// TestState_EncodesAsTheReferenceDocument pins names, formats and nulls, on which other
// programs depend.
func TestState_EncodesAsTheReferenceDocument(t *testing.T) {
	reference, err := os.ReadFile("testdata/state.json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := survey.ReadState(bytes.NewReader(reference))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if json.Unmarshal(reference, &want) != nil || json.Unmarshal(text, &got) != nil || !reflect.DeepEqual(want, got) {
		t.Errorf("decoded and encoded:\n%s\nwant the same as\n%s", text, reference)
	}
	if s.Epoch.Time != 1795169171402512342 || s.Totals.Timestamps != 9007199254740993 || s.Workers[0].End != 1795169181000 {
		t.Errorf("large numbers are not exact: %d, %d, %d", s.Epoch.Time, s.Totals.Timestamps, s.Workers[0].End)
	}
	if !math.IsNaN(s.History.P50[1]) || s.Members[1].LagEntries == nil || s.Members[2].ClockOffsetSeconds != nil {
		t.Errorf("nulls: %+v %+v", s.History.P50, s.Members)
	}
}

func TestState_OfAFollowerHasNulls(t *testing.T) {
	text, err := json.Marshal(survey.State{Members: []survey.Member{{NodeID: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"leader":null`, `"epoch":null`, `"p50":null`, `"lagEntries":null`, `"clockOffsetSeconds":null`, `"offsetFromQuorumSeconds":null`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s is missing in %s", want, text)
		}
	}
}

func TestSeries_WritesWhatJSONHasNoNumberForAsNull(t *testing.T) {
	for _, tc := range []struct {
		in   survey.Series
		want string
	}{
		{nil, "[]"},
		{survey.Series{1, math.NaN(), 0.00012}, "[1,null,0.00012]"},
		{survey.Series{math.Inf(1), -0.5, 123456789}, "[null,-0.5,1.23457e+08]"},
	} {
		if got, err := json.Marshal(tc.in); err != nil || string(got) != tc.want {
			t.Errorf("%v: %s, %v, want %s", tc.in, got, err, tc.want)
		}
	}
}

func TestReadState_RefusesWhatIsNoDocumentAndSkipsWhatIsNew(t *testing.T) {
	for _, tc := range []struct{ text, fault string }{
		{`{"node":{"id":3},"later":{"a":1}}`, ""},
		{`{}`, ""},
		{``, "not a state document"},
		{`[1]`, "not a state document"},
		{`{"epoch":{"time":"x"}}`, "not a state document"},
		{`{"version":"` + strings.Repeat("x", survey.StateBytesMax) + `"}`, "more than"},
	} {
		s, err := survey.ReadState(strings.NewReader(tc.text))
		if tc.fault == "" && (err != nil || s == nil) || tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) {
			t.Errorf("%.40s: %v, want %q", tc.text, err, tc.fault)
		}
	}
}

func FuzzReadState(f *testing.F) {
	reference, err := os.ReadFile("testdata/state.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(reference)
	f.Add([]byte(`{"history":{"p50":[null,1,-1e300]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := survey.ReadState(bytes.NewReader(text))
		if err != nil {
			return
		}
		// Any document can be shown, and its texts cannot break lines.
		var summary, table strings.Builder
		if err := survey.WriteSummary(&summary, s); err != nil {
			t.Fatal(err)
		}
		report := &survey.Report{Leader: s.Leader, Views: []survey.View{{NodeID: s.Node.ID, State: s}}}
		if err := survey.WriteTable(&table, report); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(summary.String()+table.String(), "\x1b\x00\r\a\u009b") {
			t.Errorf("control characters reach the terminal: %q %q", summary.String(), table.String())
		}
	})
}
