package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Bounds of a list of users.
const (
	fileBytesMax = 8 << 20
	usersMax     = 10000
	secretsMax   = 4 // of one user: one more than needed to replace one without an outage
)

// list is the form of the file.
type list struct {
	// Users has them by name.
	Users map[string]entry `json:"users"`
	// AddressLimits bounds what each client address may use without credentials.
	AddressLimits *Limits `json:"addressLimits,omitempty"`
}

// entry is one user.
type entry struct {
	Roles []string `json:"roles"`
	// Secrets has hashes; see HashSecret. A user without any can only use a certificate.
	Secrets []string `json:"secrets,omitempty"`
	Limits  Limits   `json:"limits,omitzero"`
	// Timeline is the timeline that requests have which name none. Timelines are names, and prefixes with a '*' after them, that they may
	// name. They are raw, as null or "" would give all timelines to a user that is to have one.
	Timeline  json.RawMessage `json:"timeline,omitempty"`
	Timelines json.RawMessage `json:"timelines,omitempty"`
	// Names are the locks and groups of writers that the user may use: names, and beginnings of names that end with '*' or '/'. Raw for the same reason.
	Names json.RawMessage `json:"names,omitempty"`
}

// user is who has rights: a user of the list, or those without credentials.
type user struct {
	name    string // "": without credentials
	roles   Roles
	secrets []hash
	limits  Limits
	orders  orders
	names   names
	usage   *usage // nil: without limits
}

// accepts reports whether u still has the secret with the hash sum.
func (u *user) accepts(sum string) bool {
	return u != nil && slices.ContainsFunc(u.secrets, func(h hash) bool { return string(h.sum) == sum })
}

// parseList reads a list of users. Its error names everything that is wrong, and no secret; then
// there are no users.
func parseList(text []byte) (users map[string]*user, address *Limits, err error) {
	l, err := decodeList(text)
	if err != nil {
		return nil, nil, err
	}
	users = map[string]*user{}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(l.Users)) {
		e := l.Users[name]
		u, err := e.user(name)
		for _, err := range each(err) {
			faults = append(faults, fmt.Errorf("user %.80q: %w", name, err))
		}
		users[name] = u
	}
	if l.AddressLimits != nil {
		if err := l.AddressLimits.check(); err != nil {
			faults = append(faults, fmt.Errorf("addressLimits: %w", err))
		}
	}
	if faults != nil {
		return nil, nil, errors.Join(faults...)
	}
	return users, l.AddressLimits, nil
}

// each returns the errors that were joined to err.
func each(err error) (list []error) {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	return several.Unwrap()
}

// decodeList decodes one JSON object with the known keys, each of them once.
func decodeList(text []byte) (l list, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return l, jsonError(err)
	}
	if d.Decode(new(json.RawMessage)) != io.EOF {
		return l, errors.New("something follows the object")
	}
	if err := checkKeys(raw); err != nil {
		return l, err
	}
	d = json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return l, jsonError(err)
	}
	return l, nil
}

// jsonError leaves out what the text has, which may be a secret.
func jsonError(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("it is not JSON, at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("at byte %d: want %s", kind.Offset, kind.Type)
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return errors.New("it is not a whole JSON object")
	}
	return fmt.Errorf("%.120s", err) // an unknown field, with its name
}

// user returns what the entry says, and all that is wrong with it.
func (e *entry) user(name string) (*user, error) {
	u := &user{name: name, limits: e.Limits}
	var faults []error
	if !ValidName(name) {
		faults = append(faults, fmt.Errorf("want a name of letters, digits, '.', '_' and '-', at most %d", NameMax))
	}
	var err error
	if u.roles, err = ParseRoles(e.Roles); err != nil {
		faults = append(faults, err)
	}
	if len(e.Secrets) > secretsMax {
		faults = append(faults, fmt.Errorf("%d secrets, at most %d are accepted", len(e.Secrets), secretsMax))
	}
	for i, text := range e.Secrets[:min(len(e.Secrets), secretsMax)] {
		h, err := parseHash(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("secret %d: %w", i+1, err))
		}
		u.secrets = append(u.secrets, h)
	}
	if err := u.limits.check(); err != nil {
		faults = append(faults, err)
	}
	if u.orders, err = parseOrders(e.Timeline, e.Timelines); err != nil {
		faults = append(faults, each(err)...)
	}
	if u.names, err = parseNames(e.Names); err != nil {
		faults = append(faults, err)
	}
	return u, errors.Join(faults...)
}
