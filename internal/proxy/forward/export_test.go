package forward

// Kept returns for how many timelines u keeps anything.
func (u *Upstream) Kept() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.lines) + len(u.held) + len(u.waiting) + u.linesUnder
}
