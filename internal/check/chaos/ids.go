//go:build linux

package chaos

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone"
)

const (
	// idPause and idBatch make about 400 IDs a second from each node, few enough to keep
	// them all.
	idPause = 50 * time.Millisecond
	idBatch = 20
	// idsMax bounds the IDs of one load that are kept, some 40 bytes each. Those beyond
	// it are only checked for order.
	idsMax = 4 << 20
)

// idSet has all IDs that a load received (I9).
type idSet struct {
	mu   sync.Mutex
	from map[int64]string // the node that made it
}

// note adds an ID, and reports which node had made it before, if one had.
func (s *idSet) note(id int64, addr string) (before string, twice bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, twice = s.from[id]; !twice && len(s.from) < idsMax {
		s.from[id] = addr
	}
	return before, twice
}

func (s *idSet) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.from)
}

// askIDs requests IDs from one node until the load ends. A node without a leader makes them
// too; one whose lease has ended, or whose clock is wrong, answers with an error.
func (l *Load) askIDs(addr string) {
	for !l.stopped() {
		answer, err := Get(addr, "/api/snowflake?n="+strconv.Itoa(idBatch), l.opt.Timeout)
		if err == nil {
			l.checkIDs(addr, answer)
		}
		select {
		case <-l.quit:
		case <-time.After(idPause):
		}
	}
}

func (l *Load) checkIDs(addr string, answer *Answer) {
	code := answer.Code()
	switch {
	case answer.Status == 200:
	case answer.Status == 503 && (code == isotone.CodeNoLeader || code == isotone.CodeNoWorker || code == isotone.CodeOverloaded || code == isotone.CodeClock):
		return
	default:
		l.fault("%s answered a request for IDs with %d %q", addr, answer.Status, answer.Body)
		return
	}
	last := int64(0)
	lines := strings.Split(string(answer.Body), "\n")
	if len(lines) != idBatch {
		l.fault("%s answered with %d IDs, want %d", addr, len(lines), idBatch)
	}
	for _, line := range lines {
		id, err := strconv.ParseInt(line, 10, 64)
		switch {
		case err != nil || id <= 0:
			l.fault("%s answered with the ID %q", addr, line)
			return
		case id <= last:
			l.fault("I9: %s answered with %d after %d", addr, id, last)
		}
		last = id
		if before, twice := l.ids.note(id, addr); twice {
			l.fault("I9: %s answered with %d, as %s did before", addr, id, before)
		}
	}
}
