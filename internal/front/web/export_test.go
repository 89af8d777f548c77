package web

// ClockWaits returns how many requests wait for the cluster clock.
func (s *Server) ClockWaits() int { return int(s.handler.clockWaits.Load()) }
