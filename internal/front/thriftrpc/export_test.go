package thriftrpc

// ErrShort is what [Session.Work] returns when it needs more.
var ErrShort = errShort

// Session is a session.
type Session struct{ s session }

// NewSession returns a new session.
func NewSession(cfg Config) *Session {
	server := New(cfg)
	s := newSession(&server.cfg, &server.labels)
	return &Session{s}
}

// Work calls work.
func (s *Session) Work(in, out []byte) (int, []byte, error) { return s.s.work(in, out) }

// Detect calls detect and names the protocol.
func Detect(b []byte, limits Limits) (name string, framed bool) {
	limits = limits.withDefaults()
	p, framed := detect(b, &limits)
	return [...]string{"", "none", "binary", "compact", "json"}[p], framed
}

// Connections returns the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
