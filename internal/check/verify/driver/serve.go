package driver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/isotone/isotone"
)

const (
	// busyMax bounds the requests that a driver of this program works on at a time: each has a goroutine, and may have
	// a connection.
	busyMax = 4096
	// timesMax is how many calls one request may ask for. After timesFor no further one is made, so that an answer is not
	// much older than that when it is checked.
	timesMax = 4096
	timesFor = 100 * time.Millisecond
	// timeoutMax bounds TimeoutMS: no system needs minutes.
	timeoutMax = time.Minute
)

// server serves one harness.
type server struct {
	system  System
	hello   Hello
	nodes   int // that there are since connect
	answers chan []byte
	stop    chan struct{} // closed at the end of the input
	work    sync.WaitGroup

	mu   sync.Mutex
	busy map[int]bool // clients; and nodes that are asked about as a whole, as -1 - node
}

// Serve is a driver: it reads requests for a system and writes answers until the input ends, and closes the system. It
// returns an error for input that is no request, or for an output that cannot be written.
func Serve(in io.Reader, out io.Writer, system System) error {
	s := &server{system: system, answers: make(chan []byte, busyMax), stop: make(chan struct{}), busy: map[int]bool{}}
	written := make(chan error, 1)
	go func() { written <- s.write(out) }()
	err := s.read(in)
	close(s.stop)
	s.work.Wait()
	close(s.answers)
	system.Close()
	return errors.Join(err, <-written)
}

// write writes the answers, and flushes them when there is no other one ready. After an error it drops them.
func (s *server) write(out io.Writer) (err error) {
	w := bufio.NewWriterSize(out, lineBuffer)
	for line := range s.answers {
		if _, e := w.Write(line); err == nil {
			err = e
		}
		if len(s.answers) > 0 {
			continue
		}
		if e := w.Flush(); err == nil {
			err = e
		}
	}
	return err
}

func (s *server) read(in io.Reader) error {
	lines := bufio.NewReaderSize(in, lineBuffer)
	var long []byte
	for {
		line, err := readLine(lines, &long)
		if err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("the input has %w", err)
		}
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("the input has %.*q, which is no JSON of a request: %w", quoteMax, line, err)
		}
		s.handle(r)
	}
}

// handle answers a request, or has a goroutine answer it.
func (s *server) handle(r Request) {
	var err error
	switch r.Do {
	case "hello", "plan", "connect":
		var ok any
		if ok, err = s.prepare(r); err == nil {
			s.answers <- encode(r.ID, ok)
		}
	case "ready", "ask", "remove", "add":
		err = s.begin(r)
	default:
		err = Errorf(Invalid, "there is no request %.40q", r.Do)
	}
	if err != nil {
		s.answers <- refuse(r.ID, err)
	}
}

// prepare answers hello, plan and connect.
func (s *server) prepare(r Request) (any, error) {
	hello, err := s.system.Hello(r.Options)
	if err == nil {
		err = checkOptions(r.Options, hello.Options)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case r.Do == "hello" && r.Protocol != Protocol:
		return nil, Errorf(Invalid, "protocol %d: want %d", r.Protocol, Protocol)
	case r.Do == "hello":
		hello.Protocol, hello.TimesMax = Protocol, timesMax
		if !clockShared {
			hello.TimesMax = 1
		}
		s.hello = hello
		return hello, nil
	case s.hello.Protocol == 0:
		return nil, Errorf(Invalid, "%s before hello", r.Do)
	case r.Do == "plan" && r.Plan == nil:
		return nil, Errorf(Invalid, "plan has no plan")
	case r.Do == "plan":
		return s.system.Plan(*r.Plan, r.Options)
	case s.nodes > 0 || len(r.Addresses) == 0:
		return nil, Errorf(Invalid, "connect comes once, with at least one address")
	}
	s.nodes = len(r.Addresses)
	return struct{}{}, s.system.Connect(r.Addresses, r.Options)
}

// begin checks a request about a node, and has a goroutine answer it.
func (s *server) begin(r Request) error {
	client := r.Client
	if r.Do != "ask" {
		client, r.Count, r.Times = -1-r.Node, 1, 1
	}
	if err := s.check(r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[client] || len(s.busy) >= busyMax {
		return Errorf(Invalid, "client %d, node %d: a request is under way already, or %d others are", r.Client, r.Node, busyMax)
	}
	s.busy[client] = true
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		line := s.answer(r)
		s.mu.Lock()
		delete(s.busy, client)
		s.mu.Unlock()
		s.answers <- line
	}()
	return nil
}

func (s *server) check(r Request) error {
	countMax := max(s.hello.CountMax, 1)
	switch {
	case r.Node < 0 || r.Node >= s.nodes:
		return Errorf(Invalid, "node %d of %d: want one that connect has named", r.Node, s.nodes)
	case r.Client < 0:
		return Errorf(Invalid, "client %d: want 0 or more", r.Client)
	case r.Count < 1 || r.Count > countMax:
		return Errorf(Invalid, "count %d: want 1 to %d", r.Count, countMax)
	case r.Times < 1 || r.Times > s.hello.TimesMax:
		return Errorf(Invalid, "times %d: want 1 to %d", r.Times, s.hello.TimesMax)
	case (r.Do == "remove" || r.Do == "add") && (!s.hello.Members || r.Start == nil):
		return Errorf(Invalid, "%s: want it of a system whose members can be changed, with how the node is started", r.Do)
	case r.TimeoutMS < 1 || r.TimeoutMS > int(timeoutMax.Milliseconds()):
		return Errorf(Invalid, "timeout_ms %d: want 1 to %d", r.TimeoutMS, timeoutMax.Milliseconds())
	}
	return nil
}

// answer does what a request about a node wants, and returns the line that answers it.
func (s *server) answer(r Request) []byte {
	timeout := time.Duration(r.TimeoutMS) * time.Millisecond
	if r.Do == "ask" {
		return s.ask(r, timeout)
	}
	ok, err := s.change(r, time.Now().Add(timeout))
	if err != nil {
		return refuse(r.ID, err)
	}
	return encode(r.ID, ok)
}

// change does what a request wants of a node as a whole.
func (s *server) change(r Request, deadline time.Time) (ok any, err error) {
	switch r.Do {
	case "remove":
		err = s.system.(MemberSystem).Remove(r.Node, *r.Start, deadline)
	case "add":
		start, err := s.system.(MemberSystem).Add(r.Node, *r.Start, deadline)
		return Added{start}, err
	default:
		err = s.system.Ready(r.Node, deadline)
	}
	return struct{}{}, err
}

// ask makes the calls of a request, and returns the line that answers it.
func (s *server) ask(r Request, timeout time.Duration) []byte {
	line := append(strconv.AppendUint([]byte(`{"id":`), r.ID, 10), `,"ok":{"calls":[`...)
	for i, start := 0, time.Now(); i < r.Times; i++ {
		now := time.Now()
		if i > 0 && now.Sub(start) > timesFor {
			break
		}
		began := Now()
		first, last, err := s.call(r, now.Add(timeout))
		ended := Now()
		if err == nil {
			err = s.stopped()
		}
		if err != nil {
			return appendFailed(line, err)
		}
		if i > 0 {
			line = append(line, ',')
		}
		line = append(AppendNumber(append(line, `{"first":"`...), first), '"')
		if s.hello.Promises == Intervals {
			line = append(AppendNumber(append(line, `,"last":"`...), last), '"')
		}
		line = strconv.AppendUint(append(line, `,"count":`...), r.Count, 10)
		if clockShared {
			line = strconv.AppendInt(append(line, `,"began":`...), began, 10)
			line = strconv.AppendInt(append(line, `,"ended":`...), ended, 10)
		}
		line = append(line, '}')
	}
	return append(line, "]}}\n"...)
}

// call makes one call. The last number counts only with the promise Intervals.
func (s *server) call(r Request, deadline time.Time) (first, last isotone.Timestamp, err error) {
	if s.hello.Promises == Intervals {
		return s.system.(IntervalSystem).AskInterval(r.Node, deadline)
	}
	first, err = s.system.Ask(r.Node, r.Count, deadline)
	return first, last, err
}

// stopped returns an error once the input has ended: then nobody reads the answers.
func (s *server) stopped() error {
	select {
	case <-s.stop:
		return Errorf(Unavailable, "the driver ends")
	default:
		return nil
	}
}

func appendFailed(line []byte, err error) []byte {
	e := failure(err)
	failed, err := json.Marshal(Failed{Error: e.Kind, Message: e.Message})
	if err != nil {
		panic(err) // two strings
	}
	line = append(append(line, `],"failed":`...), failed...)
	return append(line, "}}\n"...)
}

func refuse(id uint64, err error) []byte {
	e := failure(err)
	return encodeLine(Response{ID: id, Error: e.Kind, Message: e.Message})
}

func encode(id uint64, ok any) []byte {
	text, err := json.Marshal(ok)
	if err != nil {
		panic(err) // strings and numbers
	}
	return encodeLine(Response{ID: id, OK: text})
}

func encodeLine(r Response) []byte {
	line, err := json.Marshal(r)
	if err != nil {
		panic(err) // as above
	}
	return append(line, '\n')
}
