package conformance_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/check/cluster"
	"github.com/isotone/isotone/internal/check/conformance"
)

// build builds isotone and the driver of the Go client.
func build(t *testing.T) (isotone, driver string) {
	t.Helper()
	dir := t.TempDir()
	isotone, err := cluster.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	driver = filepath.Join(dir, "driver.exe")
	if out, err := exec.Command("go", "build", "-o", driver, "../../../clients/go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return isotone, driver
}

// script returns a driver that answers calls with call and everything else with success.
func script(call string) []string {
	const other = `"ok":{"protocol":1,"client":"script"}`
	return []string{"sed", "-u", "-E", `/"do":"call"/s/.*"id":([0-9]+).*/{"id":\1,` + call + `}/;/"do":/s/.*"id":([0-9]+).*/{"id":\1,` + other + `}/`}
}

func TestStorm(t *testing.T) {
	isotone, driver := build(t)
	storm := func(t *testing.T, rolls, kills int, drivers ...[]string) (*conformance.StormReport, error) {
		return conformance.RunStorm(t.Context(), conformance.Storm{
			Isotone: []string{isotone}, Dir: t.TempDir(), Drivers: drivers, Callers: 4, Rolls: rolls, Kills: kills,
			// Machines that run tests may be slow.
			Deadline: 10 * conformance.StormDeadlineDefault, Pause: conformance.StormPauseDefault,
		})
	}
	t.Run("FailsNoCallOfTheGoClient", func(t *testing.T) {
		r, err := storm(t, 1, 2, []string{driver}, []string{driver})
		if err != nil || r.Err() != nil {
			t.Fatalf("%v, %v: %+v", err, r.Err(), r)
		}
		if r.Restarts != 3 || r.Kills != 2 || r.Leaders < 1 || len(r.Clients) != 2 {
			t.Errorf("%+v", r)
		}
		for _, c := range r.Clients {
			if c.Calls < 5*4 || c.IDs == 0 || c.Slowest == 0 || c.Client != "isotone-go" {
				t.Errorf("%+v", c)
			}
		}
	})
	t.Run("NoticesAnswersThatAreWrong", func(t *testing.T) {
		r, err := storm(t, 0, 1, script(`"ok":{"first":"000000000000000f0000000000000000","count":1}`), script(`"ok":{"ids":["7"]}`))
		if err != nil || r.Err() == nil {
			t.Fatalf("%v, %v", err, r.Err())
		}
		stamps, ids := r.Clients[0], r.Clients[1]
		if stamps.Wrong != stamps.Calls-1 || ids.Wrong != ids.Calls-1 || !strings.Contains(ids.Faults[0], "the ID 7 a second time") {
			t.Errorf("%+v", r.Clients)
		}
	})
	t.Run("NoticesCallsThatFail", func(t *testing.T) {
		r, err := storm(t, 0, 1, script(`"error":"deadline_exceeded","message":"no answer in time"`))
		if err != nil || r.Err() == nil {
			t.Fatalf("%v, %v", err, r.Err())
		}
		if c := r.Clients[0]; c.Failed != c.Calls || !strings.Contains(c.Faults[0], "after the beginning: timestamp: deadline_exceeded: no answer in time") {
			t.Errorf("%+v", c)
		}
	})
	t.Run("EndsWithADriver", func(t *testing.T) {
		ends := script(`"ok":{"first":"000000000000000f0000000000000000","count":1}`)
		ends[3] = "20q;" + ends[3]
		if _, err := storm(t, 0, 1000, ends); err == nil || !strings.Contains(err.Error(), "script: the driver has ended") {
			t.Error(err)
		}
	})
}
