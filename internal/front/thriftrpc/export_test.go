package thriftrpc

// ErrShort is what [Session.Work] returns when it needs more.
var ErrShort = errShort

// Session is a connection without the connection.
type Session struct{ s session }

// NewSession returns a connection that has said nothing.
func NewSession(cfg Config) *Session {
	server := New(cfg)
	s := newSession(&server.cfg, &server.labels)
	return &Session{s}
}

// Work is what a connection does with what it has read.
func (s *Session) Work(in, out []byte) (int, []byte, error) { return s.s.work(in, out) }

// Tell names what a connection speaks that begins with b.
func Tell(b []byte, limits Limits) (name string, framed bool) {
	limits = limits.withDefaults()
	p, framed := tell(b, &limits)
	return [...]string{"", "none", "binary", "compact", "json"}[p], framed
}

// Connections returns the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
