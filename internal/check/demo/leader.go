package demo

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// watchInterval is the time between two questions to a node who leads.
const watchInterval = 20 * time.Millisecond

// watchTimeout bounds one of them, so that a stopped node is asked again soon after it continues.
const watchTimeout = 250 * time.Millisecond

// membersMax bounds an answer of a node in bytes.
const membersMax = 64 << 10

// leadership is what the nodes say about which of them leads. It is safe for concurrent use.
type leadership struct {
	// note is called with each change, and with 0 when the leader is lost.
	note func(node uint64)

	mu   sync.Mutex
	node uint64
	term uint64
	lost uint64 // a term whose leader was ended
}

// known returns the leader; 0: none is known.
func (l *leadership) known() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.node
}

// led records that a node says that it leads in a term.
func (l *leadership) led(node, term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if term <= l.lost || term < l.term || term == l.term && node == l.node {
		return
	}
	l.node, l.term = node, term
	l.note(node)
}

// lose records that the leader is about to be ended: whoever leads next does so in a later term.
func (l *leadership) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.node, l.lost = 0, l.term
	l.note(0)
}

// watch asks all nodes until ctx is done.
func (l *leadership) watch(ctx context.Context, nodes []*node) {
	client := &http.Client{Timeout: watchTimeout, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var watchers sync.WaitGroup
	for _, n := range nodes {
		url := "http://" + n.addr + "/members"
		watchers.Go(func() {
			ticker := time.NewTicker(watchInterval)
			defer ticker.Stop()
			for {
				if node, term, ok := askMembers(ctx, client, url); ok {
					l.led(node, term)
				}
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		})
	}
	watchers.Wait()
}

// askMembers reports whether the node at url leads, with its ID and the term.
func askMembers(ctx context.Context, client *http.Client, url string) (node, term uint64, leads bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, false
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, 0, false
	}
	defer answer.Body.Close()
	var m struct {
		NodeID uint64 `json:"nodeID"`
		Role   string `json:"role"`
		Term   uint64 `json:"term"`
	}
	err = json.NewDecoder(io.LimitReader(answer.Body, membersMax)).Decode(&m)
	return m.NodeID, m.Term, err == nil && m.Role == "leader"
}
