package http2

import (
	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/http1"
)

// call is the beginning of a unary call of gRPC that may be answered in the loop. It does not change: a client repeats it.
type call struct {
	path        string
	credentials string
	request     request // to be served if it is not hot
}

// callMax bounds the message of a call that can be hot: ours have some 40 bytes, and the name of a timeline.
const callMax = 128

// callOf returns the call that r begins, or nil: then the handler answers.
func (c *conn) callOf(r *request) *call {
	if c.hot == nil || r.method != "POST" || r.path != grpc.PathTimestampsGet && r.path != grpc.PathIDsGet {
		return nil
	}
	made := &call{path: r.path}
	typed := false
	for _, f := range r.fields {
		switch f.Name {
		case "content-type":
			if !grpc.IsContentType(f.Value) || typed {
				return nil
			}
			typed = true
		case "grpc-timeout":
			if _, err := grpc.ParseTimeout(f.Value); err != nil {
				return nil // the client ends a call that takes too long; nothing waits longer than the backend
			}
		case "authorization":
			if made.credentials != "" || f.Value == "" {
				return nil // which the handler refuses
			}
			made.credentials = f.Value
		case "te", "user-agent", "grpc-accept-encoding", "accept-encoding", "content-length":
		default:
			return nil
		}
	}
	if !typed {
		return nil
	}
	made.request = *r
	made.request.fields = append([]field(nil), r.fields...)
	return made
}

// beginCall has a stream wait for the message of a call.
func (c *conn) beginCall(id uint32, made *call) {
	s := c.front.newStream()
	s.id, s.call, s.received, s.length = id, made, bodyMax, made.request.length
	c.add(s)
	c.front.begun = append(c.front.begun, s)
}

// newStream returns an empty stream for a call.
func (f *Front) newStream() *stream {
	last := len(f.spare) - 1
	if last < 0 {
		return &stream{message: make([]byte, 0, 64)}
	}
	s := f.spare[last]
	f.spare = f.spare[:last]
	return s
}

// spareMax bounds the streams that a front keeps for calls to come.
const spareMax = 1024

// reuse keeps a stream that has ended, and that nothing else knows.
func (f *Front) reuse(s *stream) {
	if s.x == nil && s.timer == nil && cap(s.message) > 0 && len(f.spare) < spareMax {
		*s = stream{message: s.message[:0]}
		f.spare = append(f.spare, s)
	}
}

// boundCalls bounds the wait for the messages of the calls that were begun in this turn. Nearly all of them are whole.
func (c *conn) boundCalls() {
	for i, s := range c.front.begun {
		c.front.begun[i] = nil
		if s.call != nil && !s.ended && c.streams[s.id] == s {
			c.expire(s, func() bool { return s.call != nil && !s.ended })
		}
	}
	c.front.begun = c.front.begun[:0]
}

// addMessage adds to the message of a call. One that cannot be hot goes to the handler. It reports false if the stream has ended.
func (c *conn) addMessage(s *stream, b []byte) bool {
	if len(s.message)+len(b) <= callMax {
		s.message = append(s.message, b...)
		return true
	}
	if !c.serveCall(s) {
		c.giveBack(int64(len(b)))
		return false
	}
	s.x.body.add(b)
	return true
}

// serveCall gives a call to the handler. It reports false if the stream has ended.
func (c *conn) serveCall(s *stream) bool {
	made := s.call
	if !c.mayServe(s.id) {
		c.cancel(s, codeRefused)
		return false
	}
	x, err := newExchange(c, s, &made.request)
	if err != nil {
		c.cancel(s, codeProtocol)
		return false
	}
	s.x, s.call = x, nil
	x.body.add(s.message)
	x.start()
	return true
}

// endCall answers the call of s, whose message is whole.
func (c *conn) endCall(s *stream) {
	if c.answerCall(s, s.call) {
		return
	}
	if c.serveCall(s) {
		c.endBody(s)
	}
}

// answerCall answers a call in the loop, if that is possible.
func (c *conn) answerCall(s *stream, made *call) bool {
	message, rest, err := grpc.ParseFrame(s.message)
	if err != nil || message == nil || len(rest) > 0 {
		return false
	}
	if made.path == grpc.PathIDsGet {
		return c.answerIDs(s, made, message)
	}
	asked, err := grpc.ParseAsk(message)
	if err != nil {
		return false
	}
	request := http1.Call{
		Count: asked.Count, Mode: asked.Mode, U64: asked.U64, Floor: asked.Floor, Timeline: asked.Timeline, Credentials: made.credentials,
	}
	s.ended = true // it may be answered within the call
	c.wait(s)
	if c.hot.AskRange(s.id, &request) {
		return true
	}
	s.ended = false
	c.waitNoMore(s)
	return false
}

func (c *conn) answerIDs(s *stream, made *call, message []byte) bool {
	n, err := grpc.ParseIDs(message)
	if err != nil {
		return false
	}
	ids, ok := c.hot.MakeIDs(made.credentials, n)
	if !ok {
		return false
	}
	c.sendMessage(s, grpc.EndFrame(grpc.AppendIDs(grpc.BeginFrame(c.front.message[:0]), ids), 0))
	return true
}

// DeliverRange answers a call.
func (c *conn) DeliverRange(id uint32, issued isotone.Range, u64 bool, err error) {
	s := c.streams[id]
	if c.over || s == nil {
		return
	}
	if err != nil {
		c.sendStatus(s, grpc.FaultOf(err))
	} else {
		c.sendMessage(s, grpc.EndFrame(grpc.AppendRange(grpc.BeginFrame(c.front.message[:0]), issued, u64), 0))
	}
	c.keep()
}

// callHead begins the head of an answer to a call.
const callHead = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Type: " + grpc.ContentType + "\r\nGrpc-Accept-Encoding: identity\r\n"

// sendMessage answers a call with a message.
func (c *conn) sendMessage(s *stream, framed []byte) {
	f := c.front
	f.message = framed[:0]
	f.head = append(append(f.head[:0], callHead...), c.hot.Fields()...)
	c.conn.SetBuffered(c.appendHeaders(c.conn.Buffered(), flagEndHeaders, s.id, c.encoder.block(f.heads.of(f.head), &f.encoded)))
	c.waitNoMore(s)
	s.ended, s.trails = true, true
	if rest := c.send(s, framed, false); len(rest) > 0 {
		c.waitForWindow(s, rest)
		return
	}
	c.sendTail(s)
}

// sendTail ends the answer to a call.
func (c *conn) sendTail(s *stream) {
	block := c.encoder.block(c.front.heads.tail(), &c.front.encoded)
	c.conn.SetBuffered(c.appendHeaders(c.conn.Buffered(), flagEndHeaders|flagEndStream, s.id, block))
	c.earn()
	c.remove(s)
	c.front.reuse(s)
}

// sendStatus answers a call with an error.
func (c *conn) sendStatus(s *stream, err error) {
	f := c.front
	f.head = append(append(f.head[:0], callHead...), c.hot.Fields()...)
	fields := appendStatus(append([]field(nil), f.heads.of(f.head).fields...), err)
	block := c.encoder.encode(fields, &f.encoded)
	c.conn.SetBuffered(c.appendHeaders(c.conn.Buffered(), flagEndHeaders|flagEndStream, s.id, block))
	c.earn()
	c.remove(s)
	c.front.reuse(s)
}
