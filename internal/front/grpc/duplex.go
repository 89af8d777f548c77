package grpc

// Duplex answers a call in the event loop in which both sides send messages when they like. All methods belong to the loop's
// goroutine.
type Duplex interface {
	// Take takes frames that b begins with, and returns how many bytes they have. What it does not take comes again with what
	// follows it, and after [Sender.Resume]. With last, nothing follows b. An end that is not nil ends the call: io.EOF with the
	// status OK, any other one with that of [StatusOf].
	Take(b []byte, last bool) (used int, end error)
	// Stop has the next Take end the call unless an answer is under way; then the one after that answer does.
	Stop()
	// IsBusy reports whether an answer is under way. A connection on which nothing is may be closed when it is idle.
	IsBusy() bool
	// Closed is called once, when the call has ended. The Sender must not be used any more.
	Closed()
}

// Sender sends the answers of a [Duplex].
type Sender interface {
	// Send sends frames. Take is not called until the client's windows have room for them.
	Send(frames []byte)
	// Resume has Take called again; within Take it has no effect, as Take is called again if it has taken something.
	Resume()
}
