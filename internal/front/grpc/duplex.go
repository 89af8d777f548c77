package grpc

import "github.com/isotone/isotone/internal/front"

// Duplex answers a call in the event loop in which both sides send messages when they like. All methods belong to the loop's
// goroutine.
type Duplex interface {
	// Take takes frames that b begins with, and returns how many bytes they have. What it does not take comes again with what
	// follows it, and after [Sender.Resume]. With last, nothing follows b. An end that is not nil ends the call: io.EOF with the
	// status OK, any other one with that of [StatusOf].
	Take(b []byte, last bool) (used int, end error)
	// Stop has the next Take end the call unless an answer is under way; then the one after that answer does.
	Stop()
	// IsBusy reports whether an answer is under way. A client that takes such calls back too often loses its connection. One on which
	// nothing is under way may be closed when it is idle, unless a call on it was handed over.
	IsBusy() bool
	// Closed is called once, when the call has ended. The Sender must not be used any more.
	Closed()
}

// Sender sends the answers of a [Duplex].
type Sender interface {
	// Send sends frames, which are the caller's afterwards. Take is not called until the client's windows have room for them.
	Send(frames []byte)
	// Resume has Take called again: in the loop's next Wait if anything was not taken, so that the Done of a [front.Batch] may call it.
	// Within Take it has no effect, as Take is called again if it has taken something.
	Resume()
}

// HandOver is an [http.ResponseWriter] whose call the event loop can answer.
type HandOver interface {
	// HandOver has the loop answer the rest of the call. What was written is sent before, and must have been flushed. Open is called in
	// the loop, with the loop's backend; the [Duplex] that it returns is closed once the call has ended. Until then the writer and
	// the body must not be used. HandOver returns what has f run in the loop, or nil if the call has ended before, or
	// cannot be handed over: then open is not called.
	HandOver(open func(front.Backend, Sender) Duplex) (post func(f func()) bool)
}
