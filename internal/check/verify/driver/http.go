package driver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone"
)

// webSystem is any service that answers GET with a number.
type webSystem struct {
	addresses []string
	url       string // with {host} and {count}
	ready     string // the same for Ready
	number    string // the option
	http      *http.Client
}

var webOptions = map[string]string{
	"url":      "what is requested: {host} stands for the address of a node, {count} for how many numbers are wanted (http://{host}/)",
	"number":   "text (the default); binary, of at most 16 bytes, big-endian; or the field of a JSON object, with a number or a string",
	"promises": "unique, client or real-time, which is the default",
	"command": "how a node is started, in words with spaces between: {id} stands for its number, from 1, {host} and {port} for where it " +
		"listens, {dir} for its own directory. Without it the service runs already",
	"env":   "what is added to the environment of command, as NODE={id},PORT={port}",
	"ready": "what is requested to see whether a node is up, if not the url: some never answer that",
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

func (*webSystem) Plan(where PlanRequest, options map[string]string) (p Plan, err error) {
	if options["command"] == "" {
		return p, Errorf(Invalid, "want option command, or the addresses of a service that runs")
	}
	for i, spot := range where.Nodes {
		dir := filepath.Join(where.Dir, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return p, err
		}
		here := strings.NewReplacer("{id}", strconv.Itoa(i+1), "{host}", spot.Host, "{port}", strconv.Itoa(spot.Ports[0]), "{dir}", dir)
		start := Command{Command: strings.Fields(here.Replace(options["command"])), Dir: dir}
		if env := options["env"]; env != "" {
			start.Env = strings.Split(here.Replace(env), ",")
		}
		p.Nodes = append(p.Nodes, NodeCommand{Command: start, Address: spot.address(0)})
	}
	return p, nil
}

func (s *webSystem) Connect(addresses []string, options map[string]string) error {
	s.addresses, s.url, s.number = addresses, option(options, "url", "http://{host}/"), option(options, "number", "text")
	s.ready = option(options, "ready", s.url)
	for _, text := range []string{s.url, s.ready} {
		if u, err := url.Parse(s.expand(text, 0, 1)); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return Errorf(Invalid, "options url and ready: %q: want http:// or https://", text)
		}
	}
	s.http = &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: busyMax, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

func (s *webSystem) expand(text string, node int, count uint64) string {
	return strings.NewReplacer("{host}", s.addresses[node], "{count}", strconv.FormatUint(count, 10)).Replace(text)
}

func (s *webSystem) Ready(node int, deadline time.Time) error {
	_, err := s.get(s.expand(s.ready, node, 1), deadline)
	return err
}

func (s *webSystem) Ask(node int, count uint64, deadline time.Time) (n isotone.Timestamp, err error) {
	body, err := s.get(s.expand(s.url, node, count), deadline)
	if err != nil {
		return n, err
	}
	return s.parse(body)
}

func (s *webSystem) get(url string, deadline time.Time) ([]byte, error) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, Errorf(Invalid, "%v", err)
	}
	answer, err := s.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, webAnswerMax))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = Errorf(Unavailable, "%s", answer.Status)
	}
	return body, err
}

// parse returns the number in an answer.
func (s *webSystem) parse(body []byte) (n isotone.Timestamp, err error) {
	switch s.number {
	case "text":
		return ParseNumber(strings.TrimSpace(string(body)))
	case "binary":
		if len(body) == 0 || len(body) > isotone.TimestampSize {
			return n, Errorf(Malformed, "%d bytes: want 1 to %d", len(body), isotone.TimestampSize)
		}
		err = n.UnmarshalBinary(append(make([]byte, isotone.TimestampSize-len(body)), body...))
		return n, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return n, Errorf(Malformed, "%.60q is no JSON object: %v", body, err)
	}
	return ParseNumber(strings.Trim(string(fields[s.number]), `"`))
}

func (s *webSystem) Close() {
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
}
