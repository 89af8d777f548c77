package survey

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

const (
	// HowToAuthenticate says what to do if a node does not know who asks, and HowToPermit if that user may not ask this.
	HowToAuthenticate = "--user and --password-file, or --cert and --key, say who you are; on the machine of a node, the user that runs it needs none: --endpoint unix:DATA_DIR/operator.sock"
	HowToPermit       = "name a user that has the role, or add it to this one in ACL_FILE of the nodes"
)

// faultMax bounds what is read of an error, in bytes.
const faultMax = 4 << 10

// Refusal is the answer of a node that does not tell this user anything.
type Refusal struct {
	Message string // of the node, after the code
	// Do says what to do.
	Do string
}

// Error returns the message and what to do.
func (r *Refusal) Error() string { return "refuses the credentials: " + r.Message + " (" + r.Do + ")" }

// ReadRefusal returns the refusal in an answer of a node, nil if that is none.
func ReadRefusal(response *http.Response) *Refusal {
	r := &Refusal{Message: strings.ToLower(http.StatusText(response.StatusCode))}
	switch response.StatusCode {
	case http.StatusUnauthorized:
		r.Do = HowToAuthenticate
	case http.StatusForbidden:
		r.Do = HowToPermit
	default:
		return nil
	}
	var fault struct{ Error struct{ Message string } }
	if body, err := io.ReadAll(io.LimitReader(response.Body, faultMax)); err == nil && json.Unmarshal(body, &fault) == nil && fault.Error.Message != "" {
		r.Message += ": " + fault.Error.Message
	}
	return r
}
