package forward

// Kept returns for how many timelines u keeps anything.
func (u *Upstream) Kept() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.lines) + len(u.held) + len(u.waiting) + u.linesUnder
}

// UnderWay returns how many requests of timelines are under way.
func (u *Upstream) UnderWay() int { return u.linesUnder }
