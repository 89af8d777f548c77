package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// depthMax bounds how deep objects and arrays of a list of users are nested: the list, the
// users, one user, its limits.
const depthMax = 4

// nesting is one object or array that is being read.
type nesting struct {
	object bool
	names  bool // its keys are names of users, for which case counts
	key    bool // a key comes next
	at     string
	keys   map[string]struct{}
}

// checkKeys finds what encoding/json accepts silently: a key that comes twice, of which the last
// would count. It also bounds the number of users before they are decoded. Text is valid JSON.
func checkKeys(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var open []*nesting
	for {
		token, err := d.Token()
		if err != nil {
			return err
		}
		var top *nesting
		if len(open) > 0 {
			top = open[len(open)-1]
		}
		switch delim, _ := token.(json.Delim); {
		case top == nil && delim != '{':
			return errNotAList
		case delim == '{' || delim == '[':
			if len(open) == depthMax {
				return fmt.Errorf("at byte %d: want a list of users, not something nested more than %d deep", d.InputOffset(), depthMax)
			}
			open = append(open, nest(open, delim == '{'))
			continue
		case delim == '}' || delim == ']':
			if open = open[:len(open)-1]; len(open) == 0 {
				return nil
			}
			top = open[len(open)-1]
		case top.object && top.key:
			if err := top.add(token.(string)); err != nil {
				return err
			}
			continue
		}
		top.key = top.object // what has ended was a value
	}
}

var errNotAList = errors.New(`want a JSON object, as in {"users": {}}`)

// nest returns what begins within open.
func nest(open []*nesting, object bool) *nesting {
	n := &nesting{object: object, key: object}
	if object {
		n.keys = map[string]struct{}{}
	}
	if len(open) == 1 {
		n.names = object && strings.EqualFold(open[0].at, "users")
	}
	return n
}

// add notes a key. Those of users are compared as they are, and all others as encoding/json does,
// without regard to case.
func (n *nesting) add(key string) error {
	n.key, n.at = false, key
	if n.names {
		if _, twice := n.keys[key]; twice {
			return fmt.Errorf("user %.80q is listed twice; want every name once", key)
		}
		if len(n.keys) == usersMax {
			return fmt.Errorf("it has more than %d users, which is the most that is accepted", usersMax)
		}
		n.keys[key] = struct{}{}
		return nil
	}
	for other := range n.keys {
		if strings.EqualFold(other, key) {
			return fmt.Errorf("the key %.80q comes twice in one object", key)
		}
	}
	if len(n.keys) == objectKeysMax {
		return fmt.Errorf("an object has more than %d keys", objectKeysMax)
	}
	n.keys[key] = struct{}{}
	return nil
}

// objectKeysMax bounds the keys of an object: there are fewer than that to choose from.
const objectKeysMax = 16
