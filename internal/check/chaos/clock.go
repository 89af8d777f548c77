//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/isotone/isotone/internal/host/faults"
)

// ClockSettle is how long to wait after [Node.SetClock]: the node polls the file every 20 ms
// and reads the clock every 100 ms.
const ClockSettle = 250 * time.Millisecond

// writeSetting replaces the file of a clock atomically.
func writeSetting(f faults.ClockSetting, path string) error {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	return nil
}
