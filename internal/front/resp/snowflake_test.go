package resp

import (
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/snowflake"
)

type ids struct {
	next snowflake.ID
	err  error
}

func (g *ids) Fill(dst []snowflake.ID) error {
	if g.err != nil {
		return g.err
	}
	for i := range dst {
		dst[i] = g.next
		g.next++
	}
	return nil
}

func (g *ids) Worker() (int, snowflake.Layout, error) { return 0, snowflake.Twitter, nil }

func TestConn_Snowflake(t *testing.T) {
	o := newOracle()
	g := &ids{next: 1 << 62}
	w := newTape(t, New(Config{Backend: o, IDs: g}))
	w.feed([]byte("SNOWFLAKE\r\n*2\r\n$9\r\nsnowflake\r\n$1\r\n2\r\nSNOWFLAKE 1\r\n"))
	want := ":4611686018427387904\r\n*2\r\n:4611686018427387905\r\n:4611686018427387906\r\n*1\r\n:4611686018427387907\r\n"
	if got := w.finish(o); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(o.batches) != 0 {
		t.Error("ids need no leader")
	}
}

func TestConn_SnowflakeAsString(t *testing.T) {
	w := newTape(t, New(Config{Backend: newOracle(), IDs: &ids{next: 1 << 62}}))
	for _, tt := range []struct{ say, want string }{
		{"SNOWFLAKE AS STRING", "$19\r\n4611686018427387904\r\n"},
		{"snowflake 2 as string", "*2\r\n$19\r\n4611686018427387905\r\n$19\r\n4611686018427387906\r\n"},
		{"SNOWFLAKE 1 AS INTEGER", "*1\r\n:4611686018427387907\r\n"},
		{"SNOWFLAKE AS INTEGER", ":4611686018427387908\r\n"},
		// Only libraries that would round integers get strings unasked.
		{"CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"},
		{"CLIENT SETINFO LIB-VER ioredis", "+OK\r\n"},
		{"SNOWFLAKE", ":4611686018427387909\r\n"},
		{"client setinfo lib-name ioredis", "+OK\r\n"},
		{"SNOWFLAKE", "$19\r\n4611686018427387910\r\n"},
		{"CLIENT SETINFO LIB-NAME node-redis(tag_v1)", "+OK\r\n"},
		{"RESET", "+RESET\r\n"},
		{"SNOWFLAKE 1", "*1\r\n$19\r\n4611686018427387911\r\n"},
		{"SNOWFLAKE AS INTEGER", ":4611686018427387912\r\n"},
		{"CLIENT SETINFO LIB-NAME node-redis-compatible", "+OK\r\n"},
		{"SNOWFLAKE", ":4611686018427387913\r\n"},
	} {
		w.got = nil
		w.feed([]byte(tt.say + "\r\n"))
		if string(w.got) != tt.want {
			t.Errorf("%s: got %q, want %q", tt.say, w.got, tt.want)
		}
	}
}

func TestConn_SnowflakeKeepsItsPlaceBetweenTimestamps(t *testing.T) {
	o := newOracle()
	o.later = true
	w := newTape(t, New(Config{Backend: o, IDs: &ids{next: 7}}))
	w.feed([]byte("TS\r\nSNOWFLAKE\r\nTS\r\n"))
	if got, want := w.finish(o), stamp(0)+":7\r\n"+stamp(1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConn_SnowflakeRefusals(t *testing.T) {
	g := &ids{next: 7}
	for say, want := range map[string]string{
		"SNOWFLAKE 0\r\n":     "-ERR count \"0\": want a whole number from 1 to 16384\r\n",
		"SNOWFLAKE 16385\r\n": "-ERR count \"16385\": want a whole number from 1 to 16384\r\n",
		"SNOWFLAKE 1 2\r\n":   "-ERR wrong number of arguments for 'snowflake' command: want SNOWFLAKE [count] [AS STRING|INTEGER]\r\n",
	} {
		o := newOracle()
		w := newTape(t, New(Config{Backend: o, IDs: g}))
		w.feed([]byte(say))
		if got := w.finish(o); got != want {
			t.Errorf("%q: got %q, want %q", say, got, want)
		}
	}
	if g.next != 7 {
		t.Error("a refusal has used ids up")
	}
	for _, c := range []struct {
		ids    *ids
		prefix string
	}{
		{&ids{err: isotone.ErrOverloaded}, "-TRYAGAIN "},
		{&ids{err: isotone.ErrClock}, "-TRYAGAIN "},
		{&ids{err: isotone.ErrNoLeader}, "-CLUSTERDOWN "},
	} {
		o := newOracle()
		w := newTape(t, New(Config{Backend: o, IDs: c.ids}))
		w.feed([]byte("SNOWFLAKE\r\n"))
		if got := w.finish(o); len(got) < len(c.prefix) || got[:len(c.prefix)] != c.prefix {
			t.Errorf("%v: %q", c.ids.err, got)
		}
	}
}
