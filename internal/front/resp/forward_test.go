package resp

import "testing"

func TestConn_ForwardOffKeepsItsRequestsHere(t *testing.T) {
	o := newOracle()
	w := newTape(t, New(Config{Backend: o}))
	w.feed([]byte("TS\r\nclient forward off\r\nTS 2\r\nHELLO 3\r\nTS\r\nRESET\r\nTS\r\nCLIENT FORWARD ON\r\n"))
	w.finish(o)
	want := []bool{false, true, true, false}
	if len(o.batches) != len(want) {
		t.Fatalf("%d batches, want %d", len(o.batches), len(want))
	}
	for i, b := range o.batches {
		if b.Local != want[i] {
			t.Errorf("batch %d stays here: %v, want %v", i, b.Local, want[i])
		}
	}
	other := newOracle()
	w = newTape(t, New(Config{Backend: other}))
	w.feed([]byte("CLIENT FORWARD OFF\r\nCLIENT FORWARD ON\r\nCLIENT FORWARD\r\n"))
	const unknown = "-ERR unknown subcommand or wrong number of arguments for 'FORWARD'\r\n"
	if got := w.finish(other); got != "+OK\r\n"+unknown+unknown {
		t.Errorf("got %q", got)
	}
}
