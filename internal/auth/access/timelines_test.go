package access_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
)

func TestTimeline_IsWhatTheListSays(t *testing.T) {
	for keys, want := range map[string]map[string]string{ // by what is named; what is not there is refused
		``:                                {"": "", "a": "a", "a/b": "a/b", "orders": "orders"},
		`, "timeline": "orders"`:          {"": "orders", "orders": "orders"},
		`, "timelines": ["a/*"]`:          {"a/b": "a/b", "a/": "a/"},
		`, "timelines": ["a*", "orders"]`: {"a": "a", "a/b": "a/b", "a/": "a/", "ab": "ab", "orders": "orders"},
		`, "timelines": ["*"]`:            {"a": "a", "a/b": "a/b", "a/": "a/", "ab": "ab", "orders": "orders", "orders2": "orders2", "A/b": "A/b"},
		`, "timeline": "orders", "timelines": ["a"]`: {"": "orders", "orders": "orders", "a": "a"},
	} {
		c := open(t, access.Config{File: users(t, "", `{"users": {"u": {"roles": ["timestamps"], "secrets": ["HASH"]`+keys+`}}}`)})
		s := session(t, c, here)
		if err := prove(t, s, "u", secret); err != nil {
			t.Fatal(err)
		}
		for _, named := range []string{"", "a", "a/b", "a/", "ab", "orders", "orders2", "A/b"} {
			get, may := want[named]
			if keys == "" {
				get, may = named, true
			}
			got, ok := s.Timeline(named)
			loud, err := s.RequireTimeline(named)
			if ok != may || ok && got != get || (err == nil) != may || loud != got && ok {
				t.Errorf("%s: %q: %q, %v, %v", keys, named, got, ok, err)
			}
			if err != nil && (!errors.Is(err, isotone.ErrForbidden) || !strings.Contains(err.Error(), "user u may not use")) {
				t.Errorf("%s: %q: %v", keys, named, err)
			}
			if named != "" && (s.RequireTimelines([]string{"orders", named}) == nil) != (may && s.RequireTimelines([]string{"orders"}) == nil) {
				t.Errorf("%s: creation of %q", keys, named)
			}
		}
		if s.MayClock() != (keys == "") || (s.RequireClock() == nil) != (keys == "") {
			t.Errorf("%s: the clock: %v", keys, s.MayClock())
		}
		for prefix, may := range map[string]bool{"": keys == "" || strings.Contains(keys, `"*"`), "a/": keys == "" || strings.Contains(keys, "*"), "orders": keys == "" || strings.Contains(keys, `"*"`)} {
			if (s.RequireBelow(prefix) == nil) != may {
				t.Errorf("%s: all that begin with %q: %v", keys, prefix, !may)
			}
		}
	}
}

// TestTimeline_FaultsOfAListGiveNobodyMore: a key that says nothing is an error, since without it a user has all orders.
func TestTimeline_FaultsOfAListGiveNobodyMore(t *testing.T) {
	for keys, want := range map[string]string{
		`"timeline": ""`: "timeline: want the name", `"timeline": null`: "timeline: want the name", `"timeline": "a*"`: "timeline: want the name", `"timeline": 5`: "timeline: want the name",
		`"timeline": ["a"]`: "timeline: want the name", `"timelines": []`: "timelines: want a list", `"timelines": null`: "timelines: want a list", `"timelines": "a"`: "timelines: want a list",
		`"timelines": [""]`: "timelines: \"\"", `"timelines": ["a*b"]`: `timelines: "a*b"`, `"timelines": ["a**"]`: `timelines: "a**"`, `"timelines": ["a b"]`: `timelines: "a b"`,
		`"timelines": [null]`: "timelines: \"\"", `"timelines": ["` + strings.Repeat("a", 65) + `*"]`: "at most 64 bytes",
		`"timelines": ["a"` + strings.Repeat(`, "a"`, 64) + `]`: "1 to 64", `"timeline": "a", "timeline": "b"`: "comes twice", `"timeline": "a", "Timeline": ""`: "comes twice",
	} {
		_, err := access.Summarize(users(t, "", `{"users": {"u": {"roles": ["timestamps"], `+keys+`}}}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", keys, err, want)
		}
	}
}

// TestTimeline_FollowsTheList on an open connection, and the log says so.
func TestTimeline_FollowsTheList(t *testing.T) {
	var log bytes.Buffer
	list := func(keys string) string {
		return fmt.Sprintf(`{"users": {"u": {"roles": ["timestamps"], "secrets": ["HASH"]%s}}}`, keys)
	}
	file := users(t, "", list(""))
	c := open(t, access.Config{File: file, Log: slog.New(slog.NewTextHandler(&log, nil))})
	s := session(t, c, here)
	if err := prove(t, s, "u", secret); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ keys, want, line string }{{"", "", ""}, {`, "timeline": "a"`, "a", "timelines of u: =a"}, {`, "timeline": "b", "timelines": ["c*"]`, "b", "timelines of u: =b,c*"}, {"", "", "timelines of u: all"}} {
		users(t, file, list(tt.keys))
		c.Check()
		if got, ok := s.Timeline(""); !ok || got != tt.want || !strings.Contains(log.String(), tt.line) {
			t.Errorf("%s: %q, %v\n%s", tt.keys, got, ok, log.String())
		}
	}
}

func TestTimeline_WithoutAListAllIsOpen(t *testing.T) {
	for _, s := range []*access.Session{{}, session(t, open(t, access.Config{}), here), open(t, access.Config{}).Operator("ops")} {
		if got, ok := s.Timeline("a"); got != "a" || !ok || !s.MayClock() || s.RequireBelow("") != nil || s.RequireTimelines([]string{"b"}) != nil {
			t.Error(got, ok)
		}
	}
}
