//go:build linux

package driver_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/pgserver"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

func TestPostgres_AStandbyTakesOver(t *testing.T) {
	if pgserver.Find() == "" {
		pgserver.Unavailable(t, pgserver.ErrUnavailable)
	}
	r := run(t, start(t, "postgres"), 2, map[string]string{"failover": "0.1"})
	if r.hello.Version == "" {
		t.Error("there is no version")
	}
	r.increase(0, 1)
	if f := r.refused(1); f.Message != "it is a standby" || f.Error != driver.Unavailable {
		t.Errorf("a standby: %+v", f)
	}
	r.end(0, os.Kill)
	await.Done(t, await.Timeout, func() (bool, string) { // its processes for connections may outlive it for a moment
		a := r.ask(0, 0, 1, 1)
		return a.Failed != nil && a.Failed.Error == driver.Unavailable, fmt.Sprintf("a server that has ended: %+v", a)
	})
	await.Done(t, await.Timeout, func() (bool, string) {
		a := r.ask(1, 0, 1, 1)
		return a.Failed == nil, fmt.Sprintf("%+v: want that it is promoted", a.Failed)
	})
	r.increase(1, 1)

	r.start(0)
	if f := r.refused(0); r.nodes[0].Exited() || f.Error != driver.Unavailable {
		t.Errorf("a primary that another server has replaced: %+v, %s", f, r.nodes[0].Log())
	}
}
