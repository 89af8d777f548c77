package client

import (
	"bufio"
	"bytes"
)

// ReadyMax is how many full batches may wait.
const ReadyMax = readyMax

// Waiting returns how many calls wait to be sent.
func Waiting(c *Client) (calls uint64) {
	for _, p := range []*pool{c.stamps, c.ids} {
		p.mu.Lock()
		for _, b := range p.ready {
			calls += b.calls()
		}
		for i := range p.queues {
			calls += p.queues[i].open.Load().calls()
		}
		p.mu.Unlock()
	}
	return calls
}

// Parse reads an answer in every way there is: as one to a command, and as one to
// requests for timestamps and for ids. It returns what the second gave.
func Parse(text []byte, count uint64) (first [2]uint64, ids []int64, refused bool, err error) {
	reader := func() *bufio.Reader { return bufio.NewReaderSize(bytes.NewReader(text), laneBufferSize) }
	if v, _, err := readValue(reader()); err == nil {
		_, _ = viewOf(v, "host:1")
		if id, told, err := clusterOf(v.text); id != 0 && (!told || err != nil) {
			panic("client: a cluster that is not told")
		}
		_, _ = grantOf(v)
	}
	id := newBatch(kindID)
	id.state.Store(stateCall + count)
	if _, err := readAnswer(reader(), id); err == nil {
		for _, id := range id.ids {
			ids = append(ids, int64(id))
		}
	}
	b := newBatch(kindDefault)
	b.state.Store(stateCall + count)
	fault, err := readAnswer(reader(), b)
	return [2]uint64{b.first.Time, b.first.Index}, ids, fault != nil, err
}
