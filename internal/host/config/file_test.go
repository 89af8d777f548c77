package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/config"
)

func TestSettings_RefuseAKeyThatIsThereTwice(t *testing.T) {
	for _, text := range []string{`{"node-id": 1, "rtt-ms": 5, "node-id": 2}`, `{"node-id": 1, "node\u002did": 1}`} {
		_, err := parse(t, nil, "--config", file(t, text))
		var faults config.Faults
		if !errors.As(err, &faults) || len(faults) != 1 || !strings.Contains(faults[0].Want, `key "node-id" is there twice`) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`null`, `{"node-id": 1`, `{1: 2}`, `"node-id"`, ``} {
		if _, err := parse(t, nil, "--config", file(t, text)); err == nil || !strings.Contains(err.Error(), "want a JSON object") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
