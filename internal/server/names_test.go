package server_test

import (
	"testing"

	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
)

// TestNames_OverTheRedisProtocol: a user has the locks and groups of its list, whatever the command.
func TestNames_OverTheRedisProtocol(t *testing.T) {
	t.Parallel()
	n := testnode.Guarded(t, `{"users": {
		"shop": {"roles": ["locks", "frontier"], "names": ["shop/"], "secrets": ["HASH"]}, "ops": {"roles": ["all"], "names": ["x"], "secrets": ["HASH"]}
	}}`, nil)
	c := rig.DialRedis(t, n.Client, nil)
	const none, stamp = "00000000000000000000000000000001 00000000000000000000000000000000", "00000000000000000000000000000001"
	for _, step := range []struct{ command, want string }{
		{"AUTH shop " + rig.Secret, "+OK"},
		{"SESSION BIND 00000000000000ff 1 TTL 60000 GROUP orders " + none, "-NOPERM"},
		{"SESSION BIND 00000000000000ff 1 TTL 60000 GROUP shop/orders " + none, "*4"},
		{"LOCK ACQUIRE jobs", "-NOPERM"}, {"LOCK ACQUIRE shop", "-NOPERM"}, {"LOCK CANCEL jobs", "-NOPERM"}, {"LOCK RELEASE jobs 7", "-NOPERM"}, {"LOCK GET jobs", "-NOPERM"}, {"LOCK WATCH jobs WAIT 1", "-NOPERM"},
		{"LOCK LIST", "-NOPERM"}, {"LOCK LIST s", "-NOPERM"}, {"LOCK BREAK shop/a 7", "-NOPERM"},
		{"LOCK ACQUIRE shop/a", "*2"}, {"LOCK GET shop/a", "*8"}, {"LOCK LIST shop/", "*1"}, {"LOCK RELEASE shop/a 7", "+OK"},
		{"FRONTIER GET orders", "-NOPERM"}, {"FRONTIER WAIT orders " + stamp, "-NOPERM"}, {"FRONTIER BLOCKERS orders", "-NOPERM"},
		{"FRONTIER GET shop/orders", "$32"}, {"FRONTIER BLOCKERS shop/orders", "*1"},
		{"AUTH ops " + rig.Secret, "+OK"}, {"LOCK BREAK shop/b 7", "-ERR nobody holds"}, {"LOCK GET shop/a", "-NOPERM"},
		// The connection has the session still, but its user has the group no more.
		{"SESSION KEEP", "+OK"}, {"FRONTIER TAKE shop/orders", "-NOPERM"}, {"SESSION KEEP TAKE shop/orders 1", "-NOPERM"}, {"FRONTIER LOW shop/orders " + stamp, "-NOPERM"},
		{"SESSION KEEP LOW shop/orders " + stamp, "-NOPERM"}, {"SESSION KEEP DOUBT shop/orders " + stamp, "-NOPERM"}, {"FRONTIER SEALED shop/orders " + stamp, "-NOPERM"},
	} {
		c.Does(step.command, step.want)
	}
}
