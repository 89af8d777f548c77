package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
)

const timelinesPath = adminPrefix + "timelines"

// restrict returns r with nothing in it that its user may not ask about timelines: operators may ask for everything, and others, with the role
// Timelines, may create, delete and see those on their lists. The leader takes a request that was passed on for an operator's, so what
// it gets is written anew of what was checked here. An error matches isotone.ErrForbidden, isotone.ErrQuotaExceeded or isotone.ErrInvalidArgument.
func restrict(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	s := sessionOf(r.Context())
	if r.URL.Path != timelinesPath || s.May(access.Admin) {
		return r, nil
	}
	if err := s.Take(1, 0); err != nil {
		return r, err
	}
	checked := r.Clone(r.Context())
	if r.Method != http.MethodPost {
		q, err := restrictQuery(s, r.URL.Query())
		checked.URL.RawQuery = q.Encode()
		return checked, err
	}
	body, err := restrictBody(s, http.MaxBytesReader(w, r.Body, carriedBodyMax))
	checked.URL.RawQuery, checked.Body, checked.ContentLength = "", io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return checked, err
}

// restrictQuery returns what a user may ask for of a query: one name, or a prefix all of whose names are the user's.
func restrictQuery(s *access.Session, asked url.Values) (url.Values, error) {
	q := url.Values{}
	for _, key := range []string{"name", "prefix", "after", "limit"} {
		if asked.Has(key) {
			q.Set(key, asked.Get(key))
		}
	}
	if name := q.Get("name"); name != "" {
		return q, s.RequireTimelines([]string{name})
	}
	return q, s.RequireBelow(q.Get("prefix"))
}

// errOperators answers a change of timelines that only operators may make.
var errOperators = isotone.Errorf(isotone.CodeForbidden, "the role timelines creates and deletes timelines by their names; all else about them needs the role admin")

// restrictBody returns what a user may ask for of a front.TimelineChange.
func restrictBody(s *access.Session, body io.Reader) ([]byte, error) {
	var c front.TimelineChange
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	err := d.Decode(&c)
	if err == nil && d.Decode(new(json.RawMessage)) != io.EOF {
		err = errors.New("something follows the object")
	}
	if err != nil {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "the body is not the JSON object that this path takes, of at most %d bytes: %v", carriedBodyMax, err)
	}
	may := front.TimelineChange{Action: c.Action, Names: c.Names, ID: c.ID}
	if c.Action != front.CreateTimelines && c.Action != front.DeleteTimeline || !reflect.DeepEqual(c, may) {
		return nil, errOperators
	}
	if err := s.RequireTimelines(c.Names); err != nil {
		return nil, err
	}
	return json.Marshal(may)
}
