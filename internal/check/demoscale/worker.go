package demoscale

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/isotone/isotone/internal/front/stats"
)

// Header fields of an answer: the worker, and whether the cache had the answer.
const (
	fieldWorker = "Joke-Worker"
	fieldCache  = "Joke-Cache"
)

// wordBytesMax bounds a word.
const wordBytesMax = 64

// stopTimeout bounds stopping a worker.
const stopTimeout = 5 * time.Second

// worker is an echo server that behaves like a single-threaded process: it serves one request at
// a time, in order of arrival. A cache miss costs some CPU time and a random sleep.
type worker struct {
	place  int
	rounds int
	sleep  time.Duration
	turn   chan struct{} // one token, held by the request being served

	// Guarded by the token.
	source *rand.Rand
	cache  cache

	url    string
	cancel context.CancelFunc
	server *http.Server
	served chan struct{} // closed when the server has ended
}

// startWorker starts a worker on a free port of the loopback interface. Workers with the same
// index sleep for the same times.
func startWorker(s settings, place int) (*worker, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &worker{
		place: place, rounds: s.rounds, sleep: s.sleep, turn: make(chan struct{}, 1),
		source: rand.New(rand.NewPCG(s.seed, uint64(place)<<1|1)), cache: cache{size: s.cache},
		url: "http://" + l.Addr().String(), served: make(chan struct{}),
	}
	if place == 0 {
		w.sleep *= time.Duration(s.slow)
	}
	w.turn <- struct{}{}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	mux := http.NewServeMux()
	mux.HandleFunc("GET /echo", w.echo)
	var handler http.Handler = mux
	if s.record != nil {
		handler = stats.Handler(mux, stats.Options{Recorder: s.record})
	}
	w.server = &http.Server{
		Handler: handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		defer close(w.served)
		_ = w.server.Serve(l) // ends with ErrServerClosed
	}()
	return w, nil
}

// stop ends the worker and waits for it.
func (w *worker) stop() error {
	w.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := w.server.Shutdown(ctx)
	<-w.served
	return err
}

// echo answers with the word and its digest.
func (w *worker) echo(rw http.ResponseWriter, r *http.Request) {
	word := r.URL.Query().Get("word")
	if word == "" || len(word) > wordBytesMax {
		http.Error(rw, "want a short word", http.StatusBadRequest)
		return
	}
	answer, how, err := w.answer(r.Context(), word)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	rw.Header().Set(fieldWorker, strconv.Itoa(w.place))
	rw.Header().Set(fieldCache, how)
	_, _ = io.WriteString(rw, answer)
}

// answer waits for its turn and answers a word. how is "hit" or "miss". The error is that of ctx.
func (w *worker) answer(ctx context.Context, word string) (answer, how string, err error) {
	select {
	case <-w.turn:
	case <-ctx.Done():
		return "", "", ctx.Err()
	}
	defer func() { w.turn <- struct{}{} }()
	answer, ok := w.cache.get(word)
	if ok {
		return answer, "hit", nil
	}
	answer = answerTo(word, w.rounds)
	if !w.rest(ctx) {
		return "", "", ctx.Err()
	}
	w.cache.put(word, answer)
	return answer, "miss", nil
}

// rest sleeps for 50 to 150 percent of the mean. It reports false if ctx ended first.
func (w *worker) rest(ctx context.Context) bool {
	sleep := w.sleep / 2
	if w.sleep > 0 {
		sleep += time.Duration(w.source.Int64N(int64(w.sleep)))
	}
	select {
	case <-time.After(sleep):
		return true
	case <-ctx.Done():
		return false
	}
}

// answerTo computes the correct answer to a word, at the cost of rounds hashes.
func answerTo(word string, rounds int) string {
	sum := sha256.Sum256([]byte(word))
	for range rounds {
		sum = sha256.Sum256(sum[:])
	}
	return word + " " + hex.EncodeToString(sum[:8])
}
