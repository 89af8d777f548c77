package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

// In these tests time passes only while everything waits, so that all times are exact but for the
// jitter of pauses, which is at most half.

// callers starts calls, and returns what waits for them and returns when the last was answered.
func callers(t *testing.T, c *client.Client, count int) (wait func() time.Time) {
	var work sync.WaitGroup
	for range count {
		work.Go(func() {
			if _, err := c.Timestamp(within(t, 10*time.Second)); err != nil {
				t.Error(err)
			}
		})
	}
	return func() time.Time {
		work.Wait()
		return time.Now()
	}
}

// settle waits until nothing is under way after the start of a client.
func settle(t *testing.T, c *client.Client) {
	t.Helper()
	wantTimestamp(t, c)
	time.Sleep(time.Second)
}

// TestSearch_TheSuccessorIsFoundAtOnce: the leader dies under a thousand callers, and the
// others elect another one after a while. The client pays at most one pause for that, and asks a
// few times, on one connection to each node.
func TestSearch_TheSuccessorIsFoundAtOnce(t *testing.T) {
	for _, election := range []time.Duration{0, 3 * time.Millisecond, 40 * time.Millisecond, 700 * time.Millisecond} {
		inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
			wantTimestamp(t, c)
			f.lead(-1)
			began, dialed := time.Now(), m.dialedTo(f.nodes[2])
			asked := f.nodes[2].count("CLUSTER SLOTS")
			f.nodes[0].stop()
			wait := callers(t, c, 1000)
			time.AfterFunc(election, func() { f.lead(2) })
			took := wait().Sub(began)
			// The pauses double from 1 to 8 ms, so that before jitter the last is hardly longer than
			// the election.
			if limit := election + min(election+2*time.Millisecond, 8*time.Millisecond)*3/2; took > limit {
				t.Errorf("election of %v: answered after %v, want %v at most", election, took, limit)
			}
			questions := f.nodes[2].count("CLUSTER SLOTS") - asked
			if most := 8 + int(election/(4*time.Millisecond)); questions > most {
				t.Errorf("election of %v: %d questions for 1000 calls, want %d at most", election, questions, most)
			}
			// One for the search, those of the pools, and one for a question to the new leader.
			if dials := m.dialedTo(f.nodes[2]) - dialed; dials > 3+client.ConnsDefault {
				t.Errorf("election of %v: %d connections to the successor", election, dials)
			}
		})
	}
}

// TestSearch_ItsConnectionBecomesOneForTimestamps, so that the successor gets no other before the
// first request.
func TestSearch_ItsConnectionBecomesOneForTimestamps(t *testing.T) {
	inMemory(t, 2, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		settle(t, c)
		before := m.dialedTo(f.nodes[1])
		f.lead(-1)
		f.nodes[0].stop()
		wait := callers(t, c, 10)
		time.AfterFunc(20*time.Millisecond, func() { f.lead(1) })
		wait()
		time.Sleep(time.Second)
		if dials := m.dialedTo(f.nodes[1]) - before; dials != client.ConnsDefault+1 || client.Free(c) != dials {
			t.Errorf("%d connections to the successor, %d in use; want %d", dials, client.Free(c), client.ConnsDefault+1)
		}
	})
}

// TestSearch_AllRefuseForAWhile: every process is down, longer than pauses are short.
func TestSearch_AllRefuseForAWhile(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		wantTimestamp(t, c)
		for _, n := range f.nodes {
			n.stop()
		}
		const down = 5 * time.Second
		before := m.dialedTo(f.nodes[1])
		wait := callers(t, c, 100)
		time.Sleep(down)
		// A second with pauses of 4 to 12 ms, and four with pauses of 50 to 150 ms.
		if dials := m.dialedTo(f.nodes[1]) - before; dials < 50 || dials > 8+1000/4+4000/50 {
			t.Errorf("%d dials of a node that is down for %v", dials, down)
		}
		began := time.Now()
		f.lead(1)
		for _, n := range f.nodes {
			n.start()
		}
		if took := wait().Sub(began); took > 150*time.Millisecond {
			t.Errorf("answered %v after the start", took)
		}
	})
}

// TestSearch_HearsayIsNotAwaited: the leader's machine is lost, so that not even a refused
// connection tells, and a member goes on naming it.
func TestSearch_HearsayIsNotAwaited(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		wantTimestamp(t, c)
		stale := f.slots()
		f.nodes[1].replies(func(args []string) ([]byte, bool) { return stale, args[0] == "CLUSTER" })
		f.lead(-1)
		f.nodes[0].freeze()
		began := time.Now()
		wait := callers(t, c, 10)
		const election = 300 * time.Millisecond // the client notices after 250
		time.AfterFunc(election, func() { f.lead(2) })
		if took := wait().Sub(began); took > election+2*12*time.Millisecond {
			t.Errorf("answered after %v", took)
		}
	})
}

// TestSearch_HearsayDoesNotEndIt: the leader was deposed and refuses. One member answers that it
// leads still, and then the successor answers.
func TestSearch_HearsayDoesNotEndIt(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		settle(t, c)
		const late = 300 * time.Microsecond // before the client asks the old leader again
		stale, down := f.slots(), []byte("-CLUSTERDOWN no leader is known\r\n")
		f.nodes[0].replies(func(args []string) ([]byte, bool) { return down, args[0] == "CLUSTER" || args[0] == "TS" })
		f.nodes[1].replies(func(args []string) ([]byte, bool) { return stale, args[0] == "CLUSTER" })
		f.nodes[2].replies(func(args []string) ([]byte, bool) {
			if args[0] == "CLUSTER" {
				time.Sleep(late)
			}
			return nil, false
		})
		f.lead(2)
		began := time.Now()
		if took := callers(t, c, 10)().Sub(began); took != late {
			t.Errorf("answered after %v, want %v", took, late)
		}
	})
}

// TestSearch_IsNotHeldUpBySilence: a member accepts connections and says nothing.
func TestSearch_IsNotHeldUpBySilence(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		wantTimestamp(t, c)
		m.silence(f.nodes[1])
		f.lead(-1)
		f.nodes[0].stop()
		began := time.Now()
		wait := callers(t, c, 10)
		const election = 10 * time.Millisecond
		time.AfterFunc(election, func() { f.lead(2) })
		if took := wait().Sub(began); took > election+12*time.Millisecond {
			t.Errorf("answered after %v", took)
		}
		if dials := m.dialedTo(f.nodes[1]); dials > 2 {
			t.Errorf("%d connections to a silent node", dials)
		}
	})
}

// TestSearch_MovedToADeadLeader: the node that the client asks redirects it to one that has
// died.
func TestSearch_MovedToADeadLeader(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		wantTimestamp(t, c)
		f.nodes[1].stop()
		moved := []byte("-MOVED 0 " + f.nodes[1].addr + "\r\n")
		f.nodes[0].replies(func(args []string) ([]byte, bool) { return moved, args[0] == "TS" })
		f.lead(2)
		began := time.Now()
		if took := callers(t, c, 10)().Sub(began); took > 5*time.Millisecond {
			t.Errorf("answered after %v", took)
		}
	})
}

// TestSearch_RedirectLoopsArePacedAndEnd: two nodes name each other, until one of them serves.
func TestSearch_RedirectLoopsArePacedAndEnd(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		wantTimestamp(t, c)
		for i, n := range f.nodes[:2] {
			moved := []byte("-MOVED 0 " + f.nodes[1-i].addr + "\r\n")
			n.replies(func(args []string) ([]byte, bool) { return moved, args[0] == "TS" })
		}
		before := f.nodes[0].count("TS") + f.nodes[1].count("TS")
		if _, err := c.Timestamp(within(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in a loop: %v", err)
		}
		// Pauses of 1 to 64 ms after the first redirections, then ten a second, on two connections.
		if asked := f.nodes[0].count("TS") + f.nodes[1].count("TS") - before; asked < 5 || asked > 60 {
			t.Errorf("asked %d times in a second", asked)
		}
		f.nodes[1].replies(nil)
		f.lead(1)
		wantTimestamp(t, c)
	})
}

// TestSearch_ALeaderThatComesBackIsUsedAtOnce: leadership goes to another node and back, sooner
// than the client believes others that a failed leader leads again.
func TestSearch_ALeaderThatComesBackIsUsedAtOnce(t *testing.T) {
	inMemory(t, 2, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		for _, to := range []int{1, 0, 1, 0} {
			wantTimestamp(t, c)
			f.lead(-1)
			f.nodes[1-to].stop()
			wait := callers(t, c, 10)
			began := time.Now()
			time.AfterFunc(2*time.Millisecond, func() { f.lead(to) })
			if took := wait().Sub(began); took > 10*time.Millisecond {
				t.Errorf("to node %d: answered after %v", to, took)
			}
			f.nodes[1-to].start()
		}
	})
}

// TestSearch_ErrorsNameWhatWasTried: every node, with its latest failure.
func TestSearch_ErrorsNameWhatWasTried(t *testing.T) {
	inMemory(t, 3, func(t *testing.T, f *cluster, c *client.Client, m *memory) {
		wantTimestamp(t, c)
		f.lead(-1)
		f.nodes[0].stop()
		_, err := c.Timestamp(within(t, 100*time.Millisecond))
		if !errors.Is(err, isotone.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		for _, want := range []string{
			f.nodes[0].addr + ": connection refused (", f.nodes[1].addr + ": no_leader: no leader is known (", f.nodes[2].addr, " times)",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: want %q", err, want)
			}
		}
		f.nodes[0].start()
		f.lead(1)
		wantTimestamp(t, c)
		f.lead(-1)
		if _, err = c.Timestamp(within(t, 2*time.Millisecond)); err == nil || strings.Contains(err.Error(), "refused") {
			t.Errorf("after a success: %v", err)
		}
	})
}
