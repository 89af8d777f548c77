package demoscale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// answerBytesMax bounds what a client reads of an answer.
const answerBytesMax = 1 << 10

// load is a fixed number of clients, each of which sends its next request when it has the answer
// to the previous one (a closed loop). The words depend on the seed alone, so that every strategy
// gets the same requests.
type load struct {
	settings settings
	urls     []string // of the proxy, or of workers, which clients ask in turn: each client asks one
	answers  []string // the correct ones, by word
	workers  int
}

// run sends requests until the warm-up and the measured time are over, or an answer is wrong.
func (l *load) run(ctx context.Context) (*tally, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	measured := time.Now().Add(l.settings.warmup)
	end, stop := context.WithDeadline(ctx, measured.Add(l.settings.duration))
	defer stop()
	transport := &http.Transport{MaxIdleConnsPerHost: l.settings.clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	tallies := make([]*tally, l.settings.clients)
	var clients sync.WaitGroup
	for i := range tallies {
		c := &client{
			load: l, url: l.urls[i%len(l.urls)], http: http.Client{Transport: transport}, measured: measured,
			source: rand.New(rand.NewPCG(l.settings.seed, uint64(i)<<1)),
			tally:  newTally(l.settings.words, l.workers),
		}
		tallies[i] = c.tally
		clients.Go(func() {
			if err := c.run(end); err != nil {
				fail(err)
			}
		})
	}
	clients.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	sum := newTally(l.settings.words, l.workers)
	for _, t := range tallies {
		sum.add(t)
	}
	return sum, nil
}

// client is one of the clients.
type client struct {
	load     *load
	url      string
	http     http.Client
	source   *rand.Rand
	measured time.Time // later answers count
	tally    *tally
}

// run sends requests until end. An error means a wrong answer.
func (c *client) run(end context.Context) error {
	for end.Err() == nil {
		word := c.draw()
		began := time.Now()
		worker, hit, err := c.ask(end, word)
		wall := time.Since(began)
		switch {
		case end.Err() != nil:
			c.tally.unanswered(wall)
		case err != nil:
			return err
		case began.Add(wall).After(c.measured):
			c.tally.answered(word, worker, hit, wall)
		}
	}
	return nil
}

// draw returns the index of the next word.
func (c *client) draw() int {
	word, dice := c.source.IntN(c.load.settings.words), c.source.IntN(100)
	if dice < c.load.settings.hot {
		return 0
	}
	return word
}

// ask sends one request and checks the answer.
func (c *client) ask(ctx context.Context, word int) (worker int, hit bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/echo?word="+wordAt(word), nil)
	if err != nil {
		return 0, false, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
	if err != nil {
		return 0, false, err
	}
	if resp.StatusCode != http.StatusOK || string(body) != c.load.answers[word] {
		return 0, false, fmt.Errorf("%s is answered with %s: %.100q", wordAt(word), resp.Status, body)
	}
	worker, err = strconv.Atoi(resp.Header.Get(fieldWorker))
	if err != nil || worker < 0 || worker >= c.load.workers {
		return 0, false, errors.New("an answer does not name its worker")
	}
	return worker, resp.Header.Get(fieldCache) == "hit", nil
}

// wordAt returns the word with an index.
func wordAt(i int) string { return "word-" + strconv.Itoa(i+1) }
