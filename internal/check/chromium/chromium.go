// Package chromium drives a headless Chromium over its DevTools protocol, so that tests can
// check pages in a real browser.
//
// It owns the browser's process and its tabs, and knows nothing about pages. Only tests use it.
package chromium

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// Timeout bounds the start of the browser, every command, and the loading of a page.
const Timeout = 30 * time.Second

// closeTimeout bounds the time the browser has to end by itself before it is killed.
const closeTimeout = 5 * time.Second

// Browser is one browser for all tests of a package, each of which has its own [Tab]s. It
// starts with the first tab; the zero value is ready to use. [Browser.Close] ends it.
type Browser struct {
	once    sync.Once
	running *process
	absent  string // if there is no browser: the reason to skip tests
	err     error
}

// names are the commands of the browsers that it can use, the first choice first.
var names = []string{"chromium", "chromium-browser", "google-chrome"}

// get returns the browser's process. It skips the test if there is no browser, and with
// -short.
func (b *Browser) get(t testing.TB) *process {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser: skipped with -short")
	}
	b.once.Do(func() {
		for _, name := range names {
			if path, err := exec.LookPath(name); err == nil {
				b.running, b.err = start(path)
				return
			}
		}
		b.absent = "needs a browser; install one of: " + strings.Join(names, ", ")
	})
	if b.absent != "" {
		t.Skip(b.absent)
	}
	if b.err != nil {
		t.Fatalf("chromium: %v", b.err)
	}
	return b.running
}

// Close ends the browser, if it was started. No test may use it afterwards.
func (b *Browser) Close() {
	if b.running != nil {
		b.running.stop()
	}
}

// process is a running browser.
type process struct {
	cmd     *exec.Cmd
	profile string
	ended   chan struct{} // closed when its standard error is closed
	socket  *websocket.Conn
	read    chan struct{} // closed when receive has ended

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	tabs    map[string]*Tab // by session
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

func start(path string) (p *process, err error) {
	p = &process{ended: make(chan struct{}), read: make(chan struct{}), waiting: map[int]chan reply{}, tabs: map[string]*Tab{}}
	if p.profile, err = os.MkdirTemp("", "isotone-chromium-"); err != nil {
		return nil, err
	}
	p.cmd = exec.Command(path, "--headless=new", "--no-sandbox", "--remote-debugging-port=0", "--remote-allow-origins=*",
		"--user-data-dir="+p.profile, "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars", "about:blank")
	stderr, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.profile))
	}
	found := make(chan string, 1)
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if _, url, ok := strings.Cut(lines.Text(), "DevTools listening on "); ok {
				found <- url
			}
		}
	}()
	select {
	case url := <-found:
		p.socket, err = websocket.Dial(url, "", "http://127.0.0.1/")
	case <-p.ended:
		err = errors.New("the browser ended at once")
	case <-time.After(Timeout):
		err = errors.New("the browser does not listen")
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	go p.receive()
	return p, nil
}

// stop ends the browser and removes its profile.
func (p *process) stop() {
	if p.socket != nil {
		_ = websocket.JSON.Send(p.socket, map[string]any{"id": 1 << 30, "method": "Browser.close"})
	} else {
		_ = p.cmd.Process.Kill()
	}
	select {
	case <-p.ended:
	case <-time.After(closeTimeout):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	_ = p.cmd.Wait()
	if p.socket != nil {
		_ = p.socket.Close()
		<-p.read
	}
	_ = os.RemoveAll(p.profile)
}

func (p *process) receive() {
	defer close(p.read)
	for {
		var message struct {
			ID                int
			Method, SessionID string
			Params            json.RawMessage
			reply
		}
		if err := websocket.JSON.Receive(p.socket, &message); err != nil {
			return
		}
		p.mu.Lock()
		if waiting := p.waiting[message.ID]; waiting != nil {
			delete(p.waiting, message.ID)
			waiting <- message.reply
		} else if tab := p.tabs[message.SessionID]; tab != nil && message.ID == 0 {
			tab.notice(message.Method, message.Params)
		}
		p.mu.Unlock()
	}
}

// command executes one command, for a tab or, without a session, for the browser.
func (p *process) command(session, method string, params any) (json.RawMessage, error) {
	answer := make(chan reply, 1)
	p.mu.Lock()
	p.next++
	id := p.next
	p.waiting[id] = answer
	p.mu.Unlock()
	message := map[string]any{"id": id, "method": method, "params": params}
	if session != "" {
		message["sessionId"] = session
	}
	if err := websocket.JSON.Send(p.socket, message); err != nil {
		return nil, err
	}
	select {
	case got := <-answer:
		if got.Error != nil {
			return nil, errors.New(got.Error.Message)
		}
		return got.Result, nil
	case <-p.read:
		return nil, errors.New("the browser has ended")
	case <-time.After(Timeout):
		return nil, errors.New("no answer")
	}
}
