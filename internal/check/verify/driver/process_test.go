//go:build unix

package driver_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/verify/driver"
)

// startScript starts a shell script as a driver.
func startScript(t *testing.T, script string) *driver.Process {
	t.Helper()
	p, err := driver.Start("scripted", filepath.Join(t.TempDir(), "log"), []string{"sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func ask(p *driver.Process, times int) (driver.Answer, error) {
	return p.Ask(context.Background(), driver.AskRequest{Count: 1, Times: times, Timeout: time.Second})
}

// long is a line of more bytes than a driver may write.
const long = `head -c 5000000 /dev/zero | tr '\0' x`

func TestProcess_AFaultOfADriverIsTheErrorOfAllCalls(t *testing.T) {
	for name, test := range map[string]struct{ script, want string }{
		"ended":           {`read a; echo no license >&2; exit 3`, "the driver scripted has ended by itself (exit status 3): EOF; the end of its standard error:\nno license"},
		"ended in a line": {`read a; printf '{"id":'; exit 3`, `has ended by itself (exit status 3): "{\"id\":" without the end of a line`},
		"killed":          {`read a; kill -9 $$`, "has ended by itself (signal: killed)"},
		"no JSON":         {`read a; echo hello world; cat`, `wrote "hello world", which is no JSON of an answer`},
		"another id":      {`read a; echo '{"id":8,"ok":{}}'; cat`, `wrote "{\"id\":8,\"ok\":{}}": no request with this id`},
		"ok and error":    {`read a; echo '{"id":1,"ok":{},"error":"invalid"}'; cat`, "want either ok or error"},
		"neither":         {`read a; echo '{"id":1}'; cat`, "want either ok or error"},
		"another error":   {`read a; echo '{"id":1,"error":"oops"}'; cat`, `answered ask with the error "oops"`},
		"another form":    {`read a; echo '{"id":1,"ok":[]}'; cat`, `answered ask with "[]"`},
		"no calls":        {`read a; echo '{"id":1,"ok":{"calls":[]}}'; cat`, "want 1 to 1 calls, or failed"},
		"another count":   {`read a; echo '{"id":1,"ok":{"calls":[{"first":"7","count":2}]}}'; cat`, "count: want 1"},
		"an interval":     {`read a; echo '{"id":1,"ok":{"calls":[{"first":"7","last":"9","count":1}]}}'; cat`, "last: want it with the promise intervals, and with no other"},
		"another clock":   {`read a; echo '{"id":1,"ok":{"calls":[{"first":"7","count":1,"began":5,"ended":6}]}}'; cat`, "are they nanoseconds of CLOCK_MONOTONIC?"},
		"a long line":     {`read a; ` + long + `; cat`, "wrote a line of more than 4194304 bytes, which begins with \"xxx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startScript(t, test.script)
			_, err := ask(p, 1)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("%v: want %q", err, test.want)
			}
			if _, again := ask(p, 1); again == nil || again.Error() != err.Error() {
				t.Errorf("the next call: %v: want the same error", again)
			}
			await.Receive(t, "the end of the driver", p.Ended())
		})
	}
}

// TestProcess_ADriverThatIsSilentAtFirstEndsWithAnInterrupt, together with what it has started: there is nothing to wait for.
func TestProcess_ADriverThatIsSilentAtFirstEndsWithAnInterrupt(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]func(context.Context, *driver.Process) error{
		"hello": func(ctx context.Context, p *driver.Process) error { _, err := p.Hello(ctx, nil); return err },
		"plan": func(ctx context.Context, p *driver.Process) error {
			_, err := p.Plan(ctx, driver.PlanRequest{}, nil)
			return err
		},
		"connect": func(ctx context.Context, p *driver.Process) error { return p.Connect(ctx, []string{"a:1"}, nil) },
	} {
		path := filepath.Join(t.TempDir(), "pid")
		p := startScript(t, `sleep 1000 & echo $! >`+path+`; wait`)
		var pid string
		await.Until(t, "the process that the driver starts", func() bool {
			text, _ := os.ReadFile(path)
			pid = strings.TrimSpace(string(text))
			return pid != ""
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := request(ctx, p); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want the end of the context", name, err)
		}
		await.Receive(t, "the end of the driver after "+name, p.Ended())
		await.Until(t, "the end of what it has started", func() bool { return exec.Command("kill", "-0", pid).Run() != nil || zombie(pid) })
	}
}

// zombie reports whether a process has ended, and nobody has waited for it.
func zombie(pid string) bool {
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	return strings.Contains(string(stat), ") Z ")
}

// TestProcess_ADriverThatWaitsForTheSystemIsNotAtFault when a run ends: a call may take longer than that.
func TestProcess_ADriverThatWaitsForTheSystemIsNotAtFault(t *testing.T) {
	t.Parallel()
	p := startScript(t, `read a; exec sleep 1000`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Ask(ctx, driver.AskRequest{Count: 1, Times: 1, Timeout: time.Minute}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of the context", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestProcess_AskReturnsCallsWithTimes(t *testing.T) {
	p := startScript(t, `read a; echo '{"id":1,"ok":{"calls":[{"first":"7","count":1}]}}'; read a
		echo '{"id":2,"error":"unavailable","message":"an election"}'; cat >/dev/null`)
	before := driver.Now()
	a, err := ask(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	if c := a.Calls[0]; c.First != "7" || c.Began < before || c.Ended < c.Began || driver.Now() < c.Ended {
		t.Errorf("%+v: want 7, and the times of the request", c)
	}
	_, err = ask(p, 1)
	var known *driver.Error
	if !errors.As(err, &known) || known.Kind != driver.Unavailable || known.Message != "an election" {
		t.Errorf("%v: want unavailable: an election", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("the end: %v", err)
	}
}

// TestProcess_HelloIsChecked: of a misspelt order, nothing would count as broken.
func TestProcess_HelloIsChecked(t *testing.T) {
	for hello, want := range map[string]string{
		`"protocol":2,"promises":"unique"`:              "speaks version 2 of the protocol: want 1",
		`"protocol":1`:                                  `the promise "": want unique, client, real-time or intervals`,
		`"protocol":1,"promises":"realtime"`:            `the promise "realtime": want unique, client, real-time or intervals`,
		`"protocol":1,"promises":"unique","ports":7000`: "7000 ports for each node: want at most 16",
	} {
		p := startScript(t, `read a; echo '{"id":1,"ok":{`+hello+`}}'; cat >/dev/null`)
		if _, err := p.Hello(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", hello, err, want)
		}
	}
}

// TestProcess_CallsWithoutTimes are right only one at a time: the error says so.
func TestProcess_CallsWithoutTimes(t *testing.T) {
	p := startScript(t, `read a; echo '{"id":1,"ok":{"protocol":1,"promises":"unique","times_max":2}}'; read a
		echo '{"id":2,"ok":{"calls":[{"first":"7","count":1}]}}'; cat >/dev/null`)
	if _, err := p.Hello(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(p, 2); err == nil || !strings.Contains(err.Error(), "or times_max of 1") {
		t.Errorf("%v: want what to do", err)
	}
}

// TestProcess_PlanIsChecked: of two nodes at one address, one would never be asked.
func TestProcess_PlanIsChecked(t *testing.T) {
	node := func(address string) string { return `{"command":["true"],"address":"` + address + `"}` }
	for nodes, want := range map[string]string{
		node("a:1"):                        "with 1 nodes: want 2",
		node("a:1") + "," + node("a:1"):    `with one address, "a:1", of the nodes 0 and 1`,
		node("a:1") + "," + node(""):       "no command or no address of node 1",
		node("a:1") + `,{"address":"a:2"}`: "no command or no address of node 1",
		node("a:1") + "," + node("a:2") + `],"prepare":[{"command":[]}`: "no command at prepare[0]",
	} {
		p := startScript(t, `read a; echo '{"id":1,"ok":{"nodes":[`+nodes+`]}}'; cat >/dev/null`)
		if _, err := p.Plan(t.Context(), driver.PlanRequest{Nodes: make([]driver.NodeSpot, 2)}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", nodes, err, want)
		}
	}
}
