package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestOrders_TheRoleTimelines creates, deletes and shows timelines on the list of the user, and does nothing else to any.
func TestOrders_TheRoleTimelines(t *testing.T) {
	t.Parallel()
	n := newOrderNode(t)
	for _, tt := range []struct {
		user, method, query, body string
		status                    int
		answer                    string // part of it
	}{
		{"both", http.MethodPost, "", `{"action": "create", "names": ["b/1", "b/2"]}`, 200, ""},
		{"both", http.MethodPost, "", `{"action": "create", "names": ["b/3", "a/3"]}`, 403, `\"a/3\"`},
		{"both", http.MethodPost, "", `{"action": "create", "names": ["b/3"], "Names": ["a/3"]}`, 403, `\"a/3\"`},
		{"both", http.MethodPost, "", `{"action": "create", "names": ["b/3"], "group": "h000"}`, 403, "the role admin"},
		{"both", http.MethodPost, "", `{"action": "create", "names": ["b/3"], "time": "5"}`, 403, "the role admin"},
		{"both", http.MethodPost, "", `{"action": "create", "names": ["b/3"], "quota": {"requests": 5}}`, 403, "the role admin"},
		{"both", http.MethodPost, "", `{"action": "create", "names": ["b/3"], "force": true}`, 403, "the role admin"},
		{"both", http.MethodPost, "", `{"action": "create", "names": ["b/3"]} {}`, 400, "follows"},
		{"both", http.MethodPost, "", `{"action": "create", "names": ["b/3"], "x": 1}`, 400, "unknown field"},
		{"both", http.MethodPost, "", `{"action": "create", "names": []}`, 400, "want 1 to"},
		{"both", http.MethodPost, "", `{"action": "create", "names": ["b/*"]}`, 400, "a name has letters"},
		{"any", http.MethodPost, "", `{"action": "create", "names": [""]}`, 403, "may not use"},
		{"both", http.MethodPost, "", `{"action": "seal", "names": ["b/1"]}`, 403, "the role admin"},
		{"both", http.MethodPost, "", `{"action": "floor", "names": ["b/1"], "time": "5"}`, 403, "the role admin"},
		{"both", http.MethodPost, "", `{"action": "move", "names": ["b/1"], "group": "h000"}`, 403, "the role admin"},
		{"both", http.MethodPost, "", `{"action": "quota", "names": ["b/1"]}`, 403, "the role admin"},
		{"both", http.MethodPost, "", `{"action": "make", "group": "b/1"}`, 403, "the role admin"},
		{"both", http.MethodPost, "", `{"action": "drop", "group": "b/1"}`, 403, "the role admin"},
		{"both", http.MethodPost, "", `{"action": "grant", "group": "h000", "nodeID": 1}`, 403, "the role admin"},
		{"both", http.MethodPost, "", `{"action": "prefer", "group": "h000", "prefer": [1]}`, 403, "the role admin"},
		{"both", http.MethodPut, "", `{"action": "create", "names": ["b/3"]}`, 403, "may not use"},
		{"both", http.MethodGet, "?prefix=b/", "", 200, `"b/1"`},
		{"both", http.MethodGet, "?prefix=b/&after=a", "", 200, `"b/1"`},
		{"both", http.MethodGet, "?prefix=b/&prefix=a/", "", 200, `"b/1"`},
		{"both", http.MethodGet, "?prefix=b", "", 403, "may not use"},
		{"both", http.MethodGet, "", "", 403, "may not use"},
		{"both", http.MethodGet, "?name=b/1", "", 200, `"b/1"`},
		{"both", http.MethodGet, "?name=b/", "", 200, `"timelines":[]`},
		{"both", http.MethodGet, "?name=c", "", 200, `"c"`},
		{"both", http.MethodGet, "?name=a/x", "", 403, "may not use"},
		{"bound", http.MethodGet, "?name=a/x", "", 200, `"a/x"`},
		{"bound", http.MethodGet, "?prefix=a/x", "", 403, "may not use"}, // also of a/x2
		{"bound", http.MethodPost, "", `{"action": "delete", "names": ["b/1"]}`, 403, "may not use"},
		{"both", http.MethodPost, "", `{"action": "delete", "names": ["b/1"]}`, 200, ""},
		{"both", http.MethodPost, "", `{"action": "delete", "names": ["b/1"]}`, 404, "no timeline"},
		{"free", http.MethodPost, "", `{"action": "create", "names": ["z"]}`, 200, ""},
		{"free", http.MethodGet, "", "", 200, `"z"`},
		{"free", http.MethodPost, "", `{"action": "seal", "names": ["z"]}`, 403, "the role admin"},
	} {
		status, answer := n.admin(tt.user, tt.method, tt.query, tt.body)
		if status != tt.status || !strings.Contains(answer, tt.answer) || strings.Contains(tt.query, "prefix=b/&") && strings.Contains(answer, "a/x") {
			t.Errorf("%s: %s %s %s: %d %s, want %d with %s", tt.user, tt.method, tt.query, tt.body, status, answer, tt.status, tt.answer)
		}
	}
}
