package demolive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// measureTimeout bounds a question for metrics, metricsMax the answer in bytes.
	measureTimeout = 10 * time.Second
	metricsMax     = 4 << 20
	// streamsPoll is the time between two looks at how many streams are open.
	streamsPoll = 20 * time.Millisecond
)

// reading is what the metrics of the node say.
type reading struct {
	at             time.Time
	cpu            float64 // seconds of processor time
	loads, streams float64 // of the document
}

// percentSince returns how much of one processor the node took since an earlier reading.
func (r reading) percentSince(earlier reading) float64 {
	return round(100 * (r.cpu - earlier.cpu) / max(r.at.Sub(earlier.at).Seconds(), 0.001))
}

// measure asks the node for its metrics, also after an interruption.
func (r *run) measure() (reading, error) {
	ctx, cancel := context.WithTimeout(context.Background(), measureTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.nodes.Nodes[0].Addr+"/metrics", nil)
	if err != nil {
		return reading{}, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return reading{}, errors.Join(err, r.ended())
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return reading{}, fmt.Errorf("%s: %s", request.URL, answer.Status)
	}
	return parseMetrics(io.LimitReader(answer.Body, metricsMax))
}

// parseMetrics reads metrics in the text format of Prometheus.
func parseMetrics(from io.Reader) (reading, error) {
	now, known := reading{at: time.Now()}, false
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		value, err := strconv.ParseFloat(text, 64)
		switch {
		case err != nil:
		case name == "process_cpu_seconds_total":
			now.cpu, known = value, true
		case strings.HasPrefix(name, "isotone_live_loads_total{") && strings.Contains(name, `document="votes"`):
			now.loads += value
		case name == `isotone_live_streams{document="votes"}`:
			now.streams = value
		}
	}
	if err := lines.Err(); err != nil || known {
		return now, err
	}
	return now, errors.New("the metrics of the node have no process_cpu_seconds_total on this system")
}

// noStreams waits until the streams of an earlier phase have ended, but for those of browsers.
func (r *run) noStreams(ctx context.Context) error {
	for began := time.Now(); ; {
		now, err := r.measure()
		switch {
		case err != nil:
			return err
		case now.streams <= pagesMax:
			return nil
		case time.Since(began) > settleTimeout:
			return fmt.Errorf("%.0f streams are still open %v after their readers were gone", now.streams, settleTimeout)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(streamsPoll):
		}
	}
}
