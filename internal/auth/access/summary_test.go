package access_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/auth/access"
)

func TestLimits_AreWords(t *testing.T) {
	for want, l := range map[string]access.Limits{
		"none": {},
		"requests 1/s, timestamps 2/s, connections 3, streams 4, workers 5, sessions 6, locks 7": {Requests: 1, Timestamps: 2, Connections: 3, Streams: 4, Workers: 5, Sessions: 6, Locks: 7},
	} {
		if got := l.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSummarize_FailsAsOpenDoes(t *testing.T) {
	file := users(t, "", `{"users": {"x y": {"roles": ["root"]}}}`)
	_, err := access.Summarize(file)
	_, want := access.Open(access.Config{File: file, Setting: "S"})
	if err == nil || want == nil || !strings.HasSuffix(want.Error(), err.Error()) || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("%v, want %v", err, want)
	}
	if _, err := access.Summarize(file + "x"); err == nil {
		t.Error("a file that does not exist is summarized")
	}
}
