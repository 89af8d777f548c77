package server_test

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
)

// TestHTTP2_AnIdleClientLearnsThatTheNodeDrains: GOAWAY comes while the node still serves, and before the end of the connection.
func TestHTTP2_AnIdleClientLearnsThatTheNodeDrains(t *testing.T) {
	n := testnode.Guarded(t, "", func(s *config.Settings) { s.ShutdownDelay = time.Minute })
	c, err := net.Dial("tcp", n.Client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, http2.ClientPreface)
	framer := http2.NewFramer(c, c)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	for drains := false; ; {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			if g.ErrCode != http2.ErrCodeNo || g.LastStreamID != 1<<31-1 {
				t.Errorf("%v", g)
			}
			break
		}
		if f.Header().Flags.Has(http2.FlagSettingsAck) && !drains {
			drains = true
			go func() { stopped <- n.Member.Stop(slog.New(slog.DiscardHandler)) }()
		}
	}
	if n.Member.Node.Err() != nil || !n.Member.Node.Status().Draining {
		t.Error("the node does not drain")
	}
	_ = n.Member.Close()
	<-stopped
}
