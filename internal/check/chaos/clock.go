//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// ClockFault is a fault of a node's clock. The zero value is none.
type ClockFault struct {
	OffsetMS int64 `json:"offset_ms"`
	RatePPM  int64 `json:"rate_ppm"`
	Freeze   bool  `json:"freeze"`
	// SteadyPPM is the error of the rate of the steady clock, on which intervals rest.
	SteadyPPM int64 `json:"steady_ppm"`
}

// ClockSettle is how long to wait after [Node.SetClock]: the node polls the file every 20 ms
// and reads the clock every 100 ms.
const ClockSettle = 250 * time.Millisecond

// write replaces the file atomically.
func (f ClockFault) write(path string) error {
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
