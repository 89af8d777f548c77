package child

import (
	"strings"
	"sync"
)

// tailMax is how much a [Tail] keeps, in bytes.
const tailMax = 4 << 10

// Tail keeps the end of what is written to it, such as the standard error of a process. The zero value has nothing. Any goroutine
// may call its methods.
type Tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer. It never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[max(0, len(b)-tailMax):]...)
	t.kept = t.kept[max(0, len(t.kept)-tailMax):]
	return len(b), nil
}

// String returns what was kept, without the space around it.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}
