//go:build linux

package service_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// idBatch is how many IDs a test requests at a time.
const idBatch = 100

// idSet has all IDs of a test, to find repeated ones (I9).
type idSet struct {
	mu   sync.Mutex
	from map[int64]uint64 // the node that made it
}

func newIDSet() *idSet { return &idSet{from: map[int64]uint64{}} }

// note adds an ID, and fails the test if it has it already. Any goroutine may call it.
func (s *idSet) note(t *testing.T, n *chaos.Node, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, twice := s.from[id]; twice {
		t.Errorf("I9: node %d made %d, as node %d had before", n.ID, id, before)
	}
	s.from[id] = n.ID
}

func (s *idSet) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.from)
}

// askIDs requests IDs from a node once, and notes them. It returns the answer, and the last ID
// if there is one. Any goroutine may call it.
func askIDs(t *testing.T, n *chaos.Node, ids *idSet) (a *chaos.Answer, last int64, err error) {
	if a, err = chaos.Get(n.HTTPAddr, fmt.Sprintf("/api/snowflake?n=%d", idBatch), trial.AnswerTimeout); err != nil || a.Status != 200 {
		return a, 0, err
	}
	for line := range strings.SplitSeq(string(a.Body), "\n") {
		id, err := strconv.ParseInt(line, 10, 64)
		if err != nil || id <= last {
			t.Errorf("node %d made %q after %d", n.ID, line, last)
		}
		ids.note(t, n, id)
		last = id
	}
	return a, last, nil
}

// askHTTP requests IDs from a node several times; each request must succeed.
func askHTTP(t *testing.T, n *chaos.Node, ids *idSet, times int) {
	for range times {
		if a, _, err := askIDs(t, n, ids); err != nil || a.Status != 200 {
			t.Errorf("node %d makes no IDs: %v, %v", n.ID, a, err)
			return
		}
	}
}

// someIDs requests IDs from a node, which must make them, and returns the last.
func someIDs(t *testing.T, n *chaos.Node, ids *idSet) int64 {
	t.Helper()
	a, last, err := askIDs(t, n, ids)
	if err != nil || a.Status != 200 {
		t.Fatalf("node %d makes no IDs: %v, %v", n.ID, a, err)
	}
	return last
}
