package driver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

// webSystem is any service that answers GET with a number. It runs already.
type webSystem struct {
	addresses []string
	url       string // with {host} and {count}
	field     string // of the JSON object that has the number; "": the text is the number
	http      *http.Client
}

var webOptions = map[string]string{
	"url":      "what is requested: {host} stands for the address of a node, {count} for how many numbers are wanted (http://{host}/)",
	"number":   "text (the default), or the name of the field of a JSON object that has the number, which is a number or a string",
	"promises": "unique, client or real-time, which is the default",
}

// webAnswerMax bounds an answer, in bytes.
const webAnswerMax = 64 << 10

func (*webSystem) Hello(options map[string]string) (Hello, error) {
	promises, err := choice(options, "promises", "real-time", "client", "unique")
	h := Hello{System: "http", Promises: promises, CountMax: 1, NodesMax: 16, Options: webOptions}
	if strings.Contains(options["url"], "{count}") {
		h.CountMax = 1 << 32
	}
	return h, err
}

func (*webSystem) Plan(PlanRequest, map[string]string) (Plan, error) {
	return Plan{}, Errorf(Invalid, "http starts no nodes: give the addresses of a service that runs, or a driver that starts one")
}

func (s *webSystem) Connect(addresses []string, options map[string]string) error {
	s.addresses, s.url, s.field = addresses, option(options, "url", "http://{host}/"), option(options, "number", "text")
	if s.field == "text" {
		s.field = ""
	}
	if u, err := url.Parse(s.expand(0, 1)); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return Errorf(Invalid, "option url: %q: want http:// or https://", s.url)
	}
	s.http = &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: busyMax, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

func (s *webSystem) expand(node int, count uint64) string {
	return strings.NewReplacer("{host}", s.addresses[node], "{count}", strconv.FormatUint(count, 10)).Replace(s.url)
}

func (s *webSystem) Ready(node int, deadline time.Time) error {
	_, err := s.Ask(node, 1, deadline)
	return err
}

func (s *webSystem) Ask(node int, count uint64, deadline time.Time) (n isotone.Timestamp, err error) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.expand(node, count), nil)
	if err != nil {
		return n, Errorf(Invalid, "%v", err)
	}
	answer, err := s.http.Do(request)
	if err != nil {
		return n, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, webAnswerMax))
	switch {
	case err != nil:
		return n, err
	case answer.StatusCode != http.StatusOK:
		return n, Errorf(Unavailable, "%s", answer.Status)
	}
	return s.parse(body)
}

// parse returns the number in an answer.
func (s *webSystem) parse(body []byte) (isotone.Timestamp, error) {
	text := string(body)
	if s.field != "" {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(body, &fields); err != nil {
			return isotone.Timestamp{}, Errorf(Malformed, "%.60q is no JSON object: %v", body, err)
		}
		text = strings.Trim(string(fields[s.field]), `"`)
	}
	return ParseNumber(strings.TrimSpace(text))
}

func (s *webSystem) Close() {
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
}
