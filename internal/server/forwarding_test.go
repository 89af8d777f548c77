package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/operator"
	"github.com/isotone/isotone/internal/proxy/forward"
	"github.com/isotone/isotone/internal/server"
	"github.com/isotone/isotone/snowflake"
)

// TestForward_ReachesALeaderThatDemandsTLSAndASecret uses the node itself as the leader.
func TestForward_ReachesALeaderThatDemandsTLSAndASecret(t *testing.T) {
	a := rig.NewSigner(t)
	cert, key := a.Issue("node")
	n := testnode.Guarded(t, rig.Users, func(s *config.Settings) { s.TLSCert, s.TLSKey, s.RequireTLS = cert, key, true })
	s := config.Default()
	s.ForwardCA, s.DataDir = a.File, t.TempDir()
	s.ForwardCredentialFile = rig.SecretFile(t, "web:"+rig.Secret)
	out, err := server.Outward(&s)
	if err != nil {
		t.Fatal(err)
	}
	f, err := server.StartForwarding(n.Client, out, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	await.Until(t, "a timestamp", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.Client().Timestamps(ctx, 3)
		return err == nil
	})
}

// TestForwarding_GivesOnlyWhatIsOfItsOwnCluster, wherever its client address leads.
func TestForwarding_GivesOnlyWhatIsOfItsOwnCluster(t *testing.T) {
	n := testnode.Guarded(t, "", nil)
	f, err := server.StartForwarding(n.Client, &operator.Access{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ask := func() error {
		want := forward.Want{Mode: isotone.ReadQuorum, Count: 1}
		_, err := f.Timestamps(rig.Soon(t), want)
		if _, err64 := f.Timestamps64(rig.Soon(t), want); fmt.Sprint(err64) != fmt.Sprint(err) {
			t.Errorf("of 64 bits: %v, others: %v", err64, err)
		}
		return err
	}
	if err := ask(); !errors.Is(err, isotone.ErrNoLeader) {
		t.Errorf("before the node runs: %v", err)
	}
	f.Of(func() *front.Status { return &front.Status{} })
	if err := ask(); !errors.Is(err, isotone.ErrNoLeader) {
		t.Errorf("before the node knows its cluster: %v", err)
	}
	f.Of(n.Member.Node.Status)
	if err := ask(); err != nil {
		t.Error(err)
	}
	other := n.Member.Node.Status().ClusterID ^ 1
	f.Of(func() *front.Status { return &front.Status{ClusterID: other} })
	if err := ask(); !errors.Is(err, isotone.ErrWrongCluster) || !strings.Contains(fmt.Sprint(err), isotone.ClusterID(other).String()) {
		t.Errorf("of another cluster: %v", err)
	}
}

// TestLeasedIDs_ARefusedRequestUsesNoneUp: smaller requests get what a large one could not have.
func TestLeasedIDs_ARefusedRequestUsesNoneUp(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, "", nil)
	c, err := client.New(rig.Soon(t), n.Client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	now := time.Now().UnixMilli()
	g, err := c.NewGenerator(rig.Soon(t), client.GeneratorOptions{Now: func() int64 { return now }, AheadMax: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	l := server.IDsOf(g)
	ids := make([]snowflake.ID, 2<<g.Layout().SequenceBits) // those of two milliseconds
	if err := l.Fill(ids[:len(ids)-100]); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := l.Fill(ids[:101]); !errors.Is(err, snowflake.ErrExhausted) {
			t.Errorf("101 of 100: %v", err)
		}
	}
	if err := l.Fill(ids[:100]); err != nil {
		t.Errorf("100 of 100: %v", err)
	}
}
