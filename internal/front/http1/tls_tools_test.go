package http1_test

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/check/await"
)

// screen is what a tool has printed so far.
type screen struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *screen) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.out.String(), text)
}

// Go's client cannot ask for new keys; OpenSSL's does when it is told "K", and changes its
// own only with "k".
func TestTLS_KeysAreUpdated(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("no openssl here")
	}
	s := startSecure(t)
	var seen screen
	cmd := exec.Command(openssl, "s_client", "-connect", s.addr, "-tls1_3")
	cmd.Stdout, cmd.Stderr = &seen, &seen
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for i, command := range []string{"K\n", "k\n", "K\n", ""} {
		_, _ = io.WriteString(in, plain)
		await.Until(t, "an answer", func() bool { return seen.count("200 OK") == i+1 })
		if command != "" {
			_, _ = io.WriteString(in, command)
			await.Until(t, "new keys", func() bool { return seen.count("KEYUPDATE") == i+1 })
		}
	}
	if n := s.detached.Load(); n != 0 {
		t.Errorf("%d connections were detached", n)
	}
}
